//! What can be asked of a device and its port.

use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;
use libc::{EINVAL, ENODATA, EOPNOTSUPP};

use crate::kit::{errno, zeroed};
use crate::open;

#[test]
fn ports_other_than_the_first_do_not_exist() {
    let ctx = open();
    let mut attr: ibv_port_attr = zeroed();
    let (mut gid, mut pkey) = (zeroed(), 0);
    let mut entry: ibv_gid_entry = zeroed();
    let size = size_of::<ibv_gid_entry>();
    for port in [0, 2, 255] {
        // SAFETY: open; what is asked for may be written.
        unsafe {
            assert_eq!(ibv_query_port(ctx.0, port, &mut attr), EINVAL);
            assert_eq!((ibv_query_gid(ctx.0, port, 0, &mut gid), errno()), (-1, EINVAL));
            assert_eq!((ibv_query_pkey(ctx.0, port, 0, &mut pkey), errno()), (-1, EINVAL));
            assert_eq!(ibv_get_pkey_index(ctx.0, port, 0xffff), -1);
            assert_eq!(_ibv_query_gid_ex(ctx.0, u32::from(port), 0, &mut entry, 0, size), EINVAL);
        }
    }
    // SAFETY: as above.
    assert_eq!(unsafe { _ibv_query_gid_ex(ctx.0, 257, 0, &mut entry, 0, size) }, EINVAL);
}

#[test]
fn the_gid_table_has_empty_entries_and_an_end() {
    let ctx = open();
    let mut attr: ibv_port_attr = zeroed();
    let mut gid: ibv_gid = ctx.gid();
    let mut entry: ibv_gid_entry = zeroed();
    let size = size_of::<ibv_gid_entry>();
    // SAFETY: open; what is asked for may be written; any bits are a GID.
    unsafe {
        assert_eq!(ibv_query_port(ctx.0, 1, &mut attr), 0);
        assert_eq!(gid.raw[10..], [0xff, 0xff, 127, 0, 71, 1]);
        assert_eq!(ibv_query_gid(ctx.0, 1, 1, &mut gid), 0, "an empty entry is one");
        assert_eq!(gid.raw, [0; 16]);
        for index in [-1, attr.gid_tbl_len, i32::MAX, i32::MIN] {
            assert_eq!((ibv_query_gid(ctx.0, 1, index, &mut gid), errno()), (-1, EINVAL), "{index}");
        }
        assert_eq!(_ibv_query_gid_ex(ctx.0, 1, 0, &mut entry, 0, size), 0);
        assert_eq!((entry.gid_index, entry.port_num), (0, 1));
        assert_eq!(_ibv_query_gid_ex(ctx.0, 1, 1, &mut entry, 0, size), ENODATA);
        assert_eq!(_ibv_query_gid_ex(ctx.0, 1, u32::MAX, &mut entry, 0, size), EINVAL);
        assert_eq!(_ibv_query_gid_ex(ctx.0, 1, 0, &mut entry, 1, size), EOPNOTSUPP);
        let mut table: [ibv_gid_entry; 4] = zeroed();
        assert_eq!(_ibv_query_gid_table(ctx.0, table.as_mut_ptr(), 4, 0, size), 1);
        assert_eq!(table[0].gid.raw, ctx.gid().raw);
        assert_eq!(_ibv_query_gid_table(ctx.0, table.as_mut_ptr(), 0, 0, size), -(EINVAL as isize));
    }
}

#[test]
fn there_is_one_partition() {
    let ctx = open();
    let mut pkey = 0;
    // SAFETY: open.
    unsafe {
        assert_eq!((ibv_query_pkey(ctx.0, 1, 0, &mut pkey), pkey), (0, 0xffff));
        for index in [-1, 1, i32::MAX] {
            assert_eq!((ibv_query_pkey(ctx.0, 1, index, &mut pkey), errno()), (-1, EINVAL));
        }
        assert_eq!(ibv_get_pkey_index(ctx.0, 1, 0xffff), 0);
        assert_eq!(ibv_get_pkey_index(ctx.0, 1, 0x1234), -1);
    }
}

#[test]
fn structures_of_callers_are_filled_as_far_as_they_go() {
    let ctx = open();
    let table = ctx.table();
    let (mut whole, mut part): (ibv_device_attr_ex, ibv_device_attr_ex) = (zeroed(), zeroed());
    let small = size_of::<ibv_device_attr>();
    // SAFETY: open; the sizes are those of the structures, or less.
    unsafe {
        let query = table.query_device_ex.unwrap();
        assert_eq!(query(ctx.0, std::ptr::null(), &mut whole, size_of::<ibv_device_attr_ex>()), 0);
        assert_eq!(query(ctx.0, std::ptr::null(), &mut part, small), 0);
        assert_eq!(query(ctx.0, std::ptr::null(), &mut part, small - 1), EINVAL);
        assert_eq!(query(ctx.0, &ibv_query_device_ex_input { comp_mask: 1 }, &mut part, small), EINVAL);
        assert_eq!(part.orig_attr.max_qp, whole.orig_attr.max_qp);
        assert_eq!((part.hca_core_clock, part.phys_port_cnt_ex), (0, 0), "beyond what the caller has");
        assert!(whole.hca_core_clock > 0 && whole.completion_timestamp_mask != 0);
        let mut port = [0xaa_u8; 80];
        assert_eq!((table.query_port.unwrap())(ctx.0, 1, port.as_mut_ptr().cast(), 80), 0);
        assert!(port[60..].iter().all(|&b| b == 0), "what a newer caller knows and this library does not is zero");
        let mut port = [0xaa_u8; 80];
        assert_eq!(ibv_query_port(ctx.0, 1, port.as_mut_ptr().cast()), 0);
        assert!(port[48..].iter().all(|&b| b == 0xaa), "the function symbol writes what it always wrote");
    }
}
