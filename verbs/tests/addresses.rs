//! What is asked about GIDs and ports of an open device, and addresses out of its completions.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use irnic_verbs::abi::consts::IBV_WC_GRH;
use irnic_verbs::abi::structs::{ibv_ah_attr, ibv_context, ibv_gid, ibv_grh, ibv_port_attr, ibv_wc};
use irnic_verbs::calls::*;

/// An open context of the first device there is.
struct Open(*mut ibv_context);

impl Open {
    fn new() -> Open {
        // SAFETY: the list has at least one device, and devices outlive it.
        let context = unsafe {
            let list = ibv_get_device_list(ptr::null_mut());
            assert!(!list.is_null() && !(*list).is_null(), "no device");
            let context = ibv_open_device(*list);
            ibv_free_device_list(list);
            context
        };
        assert!(!context.is_null(), "the device does not open: errno {}", errno());
        Open(context)
    }

    fn gid(&self, index: c_int) -> [u8; 16] {
        let mut gid = MaybeUninit::<ibv_gid>::zeroed();
        // SAFETY: the context is open; a GID of zeros is one.
        unsafe {
            assert_eq!(ibv_query_gid(self.0, 1, index, gid.as_mut_ptr()), 0);
            gid.assume_init().raw
        }
    }

    fn gid_table_len(&self) -> u32 {
        let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: the context is open; a port of zeros is one.
        unsafe {
            assert_eq!(ibv_query_port(self.0, 1, attr.as_mut_ptr()), 0);
            attr.assume_init().gid_tbl_len as u32
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: open, and nothing of it is left.
        unsafe { ibv_close_device(self.0) };
    }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().expect("an error of the C library")
}

/// A completion with a GRH, and the GRH of a packet to `to`.
fn received(to: [u8; 16]) -> (ibv_wc, ibv_grh) {
    // SAFETY: a completion of zeros is one.
    let mut wc: ibv_wc = unsafe { MaybeUninit::zeroed().assume_init() };
    wc.wc_flags = IBV_WC_GRH;
    wc.sl = 3;
    let sgid = ibv_gid { raw: SENDER };
    let version_tclass_flow = 0x6ab1_2345_u32.to_be();
    let grh = ibv_grh { version_tclass_flow, paylen: 0, next_hdr: 17, hop_limit: 63, sgid, dgid: ibv_gid { raw: to } };
    (wc, grh)
}

const SENDER: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7];

fn init_ah(open: &Open, wc: &ibv_wc, grh: &ibv_grh) -> Result<ibv_ah_attr, c_int> {
    let mut attr = MaybeUninit::<ibv_ah_attr>::uninit();
    // SAFETY: the context is open; the function writes all of the address.
    unsafe {
        match ibv_init_ah_from_wc(open.0, 1, wc, grh, attr.as_mut_ptr()) {
            0 => Ok(attr.assume_init()),
            _ => Err(errno()),
        }
    }
}

#[test]
fn the_type_of_a_gid_is_rocev2_and_that_of_a_gap_zero() {
    let open = Open::new();
    let len = open.gid_table_len();
    for index in 0..len {
        let mut gid_type = 7;
        // SAFETY: the context is open.
        assert_eq!(unsafe { ibv_query_gid_type(open.0, 1, index, &raw mut gid_type) }, 0);
        assert_eq!(gid_type, u32::from(open.gid(index as c_int) != [0; 16]), "GID {index}");
    }
    let mut gid_type = 7;
    // SAFETY: as above.
    assert_eq!(unsafe { ibv_query_gid_type(open.0, 1, len, &raw mut gid_type) }, -1);
    assert_eq!((errno(), gid_type), (libc::EINVAL, 7));
}

#[test]
fn the_port_has_the_speed_of_its_lanes() {
    let open = Open::new();
    let mut speed = 7;
    for no_port in [0, 2, 257] {
        // SAFETY: the context is open.
        assert_eq!(unsafe { ibv_query_port_speed(open.0, no_port, &raw mut speed) }, libc::EINVAL);
    }
    assert_eq!(speed, 7);
    // SAFETY: as above.
    assert_eq!(unsafe { ibv_query_port_speed(open.0, 1, &raw mut speed) }, 0);
    assert!(speed >= 25, "{speed} times 100 Mbit/s are less than the slowest link");
}

#[test]
fn the_answer_goes_to_the_sender_from_the_gid_that_it_wrote_to() {
    let open = Open::new();
    let (wc, grh) = received(open.gid(0));
    let attr = init_ah(&open, &wc, &grh).expect("an address");
    // SAFETY: a GID is sixteen bytes in any of its forms.
    assert_eq!(unsafe { attr.grh.dgid.raw }, SENDER);
    assert_eq!((attr.is_global, attr.port_num, attr.grh.sgid_index, attr.sl), (1, 1, 0, 3));
    assert_eq!((attr.grh.flow_label, attr.grh.traffic_class, attr.grh.hop_limit), (0x12345, 0xab, 63));
}

#[test]
fn a_packet_to_a_stranger_gives_no_address() {
    let open = Open::new();
    let (wc, grh) = received([0x20; 16]);
    assert_eq!(init_ah(&open, &wc, &grh).map(|a| a.is_global), Err(libc::EINVAL));
}

#[test]
fn without_a_grh_the_address_is_a_local_one() {
    let open = Open::new();
    let (mut wc, grh) = received([0x20; 16]);
    wc.wc_flags = 0;
    assert_eq!(init_ah(&open, &wc, &grh).map(|a| (a.is_global, a.sl, a.port_num)), Ok((0, 3, 1)));
}

#[test]
fn an_address_handle_comes_out_of_a_completion() {
    let open = Open::new();
    // Of the sender's family.
    let own = (0..open.gid_table_len() as c_int).map(|index| open.gid(index)).find(|gid| gid[10..12] == [0xff; 2]);
    let (mut wc, mut grh) = received(own.expect("an IPv4 address"));
    // SAFETY: all objects are alive until they are destroyed here.
    unsafe {
        let pd = ibv_alloc_pd(open.0);
        assert!(!pd.is_null());
        let ah = ibv_create_ah_from_wc(pd, &raw mut wc, &raw mut grh, 1);
        assert!(!ah.is_null(), "errno {}", errno());
        assert_eq!(((*ah).pd, (*ah).context), (pd, open.0));
        assert_eq!((ibv_destroy_ah(ah), ibv_dealloc_pd(pd)), (0, 0));
    }
}
