//! Functions that need no NIC answer as those of the installed libibverbs do.

mod support;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Debug;
use std::mem::MaybeUninit;
use std::path::Path;

use irnic_verbs::abi::structs::{ibv_ah_attr, ibv_qp_attr};
use irnic_verbs::calls::{self, ib_user_path_rec, ib_uverbs_ah_attr, ib_uverbs_qp_attr, ibv_sa_path_rec};
use support::skipped;

/// The functions of the distribution's libibverbs.
struct Theirs(*mut c_void);

impl Theirs {
    fn open() -> Option<Theirs> {
        for dir in ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"] {
            let path = Path::new(dir).join("libibverbs.so.1");
            if path.exists() {
                let path = CString::new(path.into_os_string().into_encoded_bytes()).expect("a path without NUL");
                // SAFETY: libibverbs can be loaded by anybody.
                let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
                assert!(!handle.is_null(), "the loader refuses {path:?}");
                return Some(Theirs(handle));
            }
        }
        skipped("libibverbs.so.1 is not installed")
    }

    /// A function as a pointer of type `F`.
    fn function<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: the handle comes from dlopen, the string ends with NUL.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "no {name:?}");
        assert_eq!(size_of::<F>(), size_of_val(&address));
        // SAFETY: the callers name the type that the function has in C.
        unsafe { std::mem::transmute_copy(&address) }
    }
}

fn string(pointer: *const c_char) -> String {
    // SAFETY: all these functions return strings that last.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// Every byte differs from its neighbours, and no two fields of the structures are equal.
fn bytes<const N: usize>() -> [u8; N] {
    std::array::from_fn(|i| (i as u8).wrapping_mul(37).wrapping_add(11))
}

/// Both functions fill a `T` from the same bytes, over the same old contents.
fn same_copy<S, T>(
    name: &str,
    ours: unsafe extern "C" fn(*mut T, *const S),
    theirs: unsafe extern "C" fn(*mut T, *const S),
) {
    const ROOM: usize = 512;
    assert!(size_of::<S>() <= ROOM && size_of::<T>() <= ROOM);
    #[repr(C, align(8))]
    struct Area([u8; ROOM]);
    let source = Area(bytes());
    let fill = |copy: unsafe extern "C" fn(*mut T, *const S)| {
        let mut area = MaybeUninit::<Area>::zeroed();
        // SAFETY: the areas are larger than the structures and aligned, and all bytes are written.
        unsafe {
            copy(area.as_mut_ptr().cast(), (&raw const source).cast());
            area.assume_init().0
        }
    };
    let (ours, theirs) = (fill(ours), fill(theirs));
    let differing: Vec<usize> = (0..ROOM).filter(|&i| ours[i] != theirs[i]).collect();
    assert!(differing.is_empty(), "{name}: bytes {differing:?}");
    assert!(ours.iter().any(|&b| b != 0));
}

#[test]
fn strings_are_the_same() {
    let Some(theirs) = Theirs::open() else { return };
    let ours: [(&CStr, extern "C" fn(u32) -> *const c_char); 4] = [
        (c"ibv_port_state_str", calls::ibv_port_state_str),
        (c"ibv_event_type_str", calls::ibv_event_type_str),
        (c"ibv_wc_status_str", calls::ibv_wc_status_str),
        (c"ibv_node_type_str", calls::ibv_node_type_str),
    ];
    for (name, our) in ours {
        let their: extern "C" fn(u32) -> *const c_char = theirs.function(name);
        for value in (0..40).chain([255, u32::MAX]) {
            let (our, their) = (string(our(value)), string(their(value)));
            // An older libibverbs does not know the latest values.
            assert!(our == their || their == "unknown", "{name:?} of {value}: {our:?}, theirs {their:?}");
        }
        assert_eq!(string(our(1000)), "unknown");
    }
}

#[test]
fn work_requests_have_names() {
    let names: Vec<String> = (0..17).map(|opcode| string(calls::ibv_wr_opcode_str(opcode))).collect();
    assert_eq!((&*names[0], &*names[6], &*names[15]), ("rdma-write", "atomic-fetch-and-add", "atomic-write"));
    assert_eq!((&*names[12], &*names[16]), ("unknown", "unknown"));
}

#[test]
fn rates_are_the_same() {
    fn check<A: Copy + Debug, B: PartialEq + Debug>(
        name: &CStr,
        ours: extern "C" fn(A) -> B,
        theirs: extern "C" fn(A) -> B,
        values: impl Iterator<Item = A>,
    ) {
        for value in values {
            assert_eq!(ours(value), theirs(value), "{name:?} of {value:?}");
        }
    }
    let Some(theirs) = Theirs::open() else { return };
    // The fastest known to rdma-core 44 is IBV_RATE_1200_GBPS, 24.
    let rates = || (0..=24).chain([25, 100, u32::MAX]);
    let name = c"ibv_rate_to_mult";
    check(name, calls::ibv_rate_to_mult, theirs.function(name), rates());
    let name = c"ibv_rate_to_mbps";
    check(name, calls::ibv_rate_to_mbps, theirs.function(name), rates());
    let name = c"mult_to_ibv_rate";
    check(name, calls::mult_to_ibv_rate, theirs.function(name), -1..600);
    let name = c"mbps_to_ibv_rate";
    let speeds = rates().map(|rate| calls::ibv_rate_to_mbps(rate)).flat_map(|mbps| [mbps - 1, mbps, mbps + 1]);
    check(name, calls::mbps_to_ibv_rate, theirs.function(name), speeds);
}

#[test]
fn copies_of_kernel_structures_are_the_same() {
    let Some(theirs) = Theirs::open() else { return };
    let name = "ibv_copy_ah_attr_from_kern";
    let copy = theirs.function(c"ibv_copy_ah_attr_from_kern");
    same_copy::<ib_uverbs_ah_attr, ibv_ah_attr>(name, calls::ibv_copy_ah_attr_from_kern, copy);
    let name = "ibv_copy_qp_attr_from_kern";
    let copy = theirs.function(c"ibv_copy_qp_attr_from_kern");
    same_copy::<ib_uverbs_qp_attr, ibv_qp_attr>(name, calls::ibv_copy_qp_attr_from_kern, copy);
    let name = "ibv_copy_path_rec_from_kern";
    let copy = theirs.function(c"ibv_copy_path_rec_from_kern");
    same_copy::<ib_user_path_rec, ibv_sa_path_rec>(name, calls::ibv_copy_path_rec_from_kern, copy);
    let name = "ibv_copy_path_rec_to_kern";
    let copy = theirs.function(c"ibv_copy_path_rec_to_kern");
    same_copy::<ibv_sa_path_rec, ib_user_path_rec>(name, calls::ibv_copy_path_rec_to_kern, copy);
}

#[test]
fn files_are_read_the_same_way() {
    type Read = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> c_int;
    let Some(theirs) = Theirs::open() else { return };
    let their: Read = theirs.function(c"ibv_read_sysfs_file");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = CString::new(dir.path().to_path_buf().into_os_string().into_encoded_bytes()).expect("no NUL");
    for text in ["", "\n", "1", "1\n", "1234567\n", "12345678", "12345678\n", "one\ntwo\n"] {
        std::fs::write(dir.path().join("file"), text).expect("room for a file");
        let read = |function: Read| {
            let mut buf = [0x55; 8];
            // SAFETY: the strings end with NUL, the buffer has the size that is told.
            let len = unsafe { function(path.as_ptr(), c"file".as_ptr(), buf.as_mut_ptr(), buf.len()) };
            (len, buf)
        };
        assert_eq!(read(calls::ibv_read_sysfs_file), read(their), "{text:?}");
    }
    let mut buf = [0; 8];
    // SAFETY: as above.
    let len = unsafe { calls::ibv_read_sysfs_file(path.as_ptr(), c"none".as_ptr(), buf.as_mut_ptr(), buf.len()) };
    assert_eq!((len, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOENT)));
}

#[test]
fn sysfs_is_in_the_same_place() {
    let Some(theirs) = Theirs::open() else { return };
    let their: extern "C" fn() -> *const c_char = theirs.function(c"ibv_get_sysfs_path");
    assert_eq!(string(calls::ibv_get_sysfs_path()), string(their()));
}

#[test]
fn no_memory_needs_protection_from_fork() {
    assert_eq!(calls::ibv_fork_init(), 0);
    assert_eq!(calls::ibv_is_fork_initialized(), 2);
    let mut page = [0_u8; 64];
    assert_eq!(calls::ibv_dontfork_range(page.as_mut_ptr().cast(), page.len()), 0);
    assert_eq!(calls::ibv_dofork_range(page.as_mut_ptr().cast(), page.len()), 0);
}
