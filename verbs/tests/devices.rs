//! Two devices in one process: what belongs to one means nothing on the other.

mod kit;

use std::ffi::c_int;
use std::io::Write;

use irnic_verbs::abi::consts::*;
use irnic_verbs::calls::*;
use kit::{Ctx, QpSpec, errno, refused, zeroed};
use libc::EINVAL;

#[test]
fn objects_of_another_device_are_refused() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    for n in 1..=2 {
        writeln!(file, "[[device]]\nname = \"two{n}\"\naddresses = [\"127.0.74.{n}\"]").expect("room for a file");
    }
    // SAFETY: before anything else of this process reads the environment.
    unsafe { std::env::set_var("IRNIC_CONFIG", file.path()) };
    // SAFETY: each call gets what the one before returned.
    let [one, two] = unsafe {
        let mut n = 0;
        let list = ibv_get_device_list(&mut n);
        assert_eq!(n, 2);
        let open = [*list, *list.add(1)].map(|device| Ctx(ibv_open_device(device)));
        ibv_free_device_list(list);
        open
    };
    assert!(!one.0.is_null() && !two.0.is_null());
    let (pd, other_pd) = (one.pd(), two.pd());
    let (cq, other_cq) = (one.cq(4), two.cq(4));
    let (srq, other_srq) = (pd.srq(4, 1), other_pd.srq(4, 1));
    assert_eq!(refused(pd.try_qp(&cq, &other_cq, QpSpec::rc())), EINVAL);
    assert_eq!(refused(pd.try_qp(&other_cq, &cq, QpSpec::rc())), EINVAL);
    assert_eq!(refused(pd.try_qp(&cq, &cq, QpSpec::rc().srq(&other_srq))), EINVAL);
    drop(pd.qp(&cq, QpSpec::rc().srq(&srq)));
    let mr = pd.mr(8);
    let change = IBV_REREG_MR_CHANGE_PD as c_int;
    // SAFETY: all exist.
    unsafe {
        assert_eq!(ibv_rereg_mr(mr.mr, change, other_pd.0, std::ptr::null_mut(), 0, 0), IBV_REREG_MR_ERR_INPUT);
        assert_eq!(errno(), EINVAL);
    }
    let mut parent: irnic_verbs::abi::structs::ibv_parent_domain_init_attr = zeroed();
    parent.pd = other_pd.0;
    // SAFETY: exists.
    assert_eq!(refused(unsafe { (one.table().alloc_parent_domain.unwrap())(one.0, &mut parent) }), EINVAL);
}
