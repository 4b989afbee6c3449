//! Two devices in one process: what belongs to one means nothing on the other, and they talk like two hosts.

mod kit;

use std::ffi::c_int;
use std::io::Write;
use std::sync::{LazyLock, Mutex};

use irnic_verbs::abi::consts::*;
use irnic_verbs::calls::*;
use kit::{Ctx, QpSpec, Recv, Send, Watchdog, errno, refused, zeroed};
use libc::EINVAL;

/// The two devices, `two1` and `two2`.
fn open() -> [Ctx; 2] {
    static CONFIG: LazyLock<tempfile::NamedTempFile> = LazyLock::new(|| {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        for n in 1..=2 {
            writeln!(file, "[[device]]\nname = \"two{n}\"\naddresses = [\"127.0.74.{n}\"]").expect("room for a file");
        }
        // SAFETY: before anything else of this process reads the environment.
        unsafe { std::env::set_var("IRNIC_CONFIG", file.path()) };
        file
    });
    LazyLock::force(&CONFIG);
    // SAFETY: each call gets what the one before returned.
    unsafe {
        let mut n = 0;
        let list = ibv_get_device_list(&mut n);
        assert_eq!(n, 2);
        let open = [*list, *list.add(1)].map(|device| Ctx(ibv_open_device(device)));
        ibv_free_device_list(list);
        open
    }
}

#[test]
fn objects_of_another_device_are_refused() {
    let [one, two] = open();
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

/// One completion queue, one memory region and one connected queue pair of each device.
fn talking(run: impl FnOnce([(&kit::Cq, &kit::Mr, &kit::Qp); 2])) {
    // One test at a time: who runs a device depends on all who use it.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let _watchdog = Watchdog::start("two devices");
    let ctx = open();
    let pds = ctx.each_ref().map(|c| c.pd());
    let cqs = ctx.each_ref().map(|c| c.cq(64));
    let mrs = pds.each_ref().map(|pd| pd.mr(64));
    let qps = [pds[0].qp(&cqs[0], QpSpec::rc()), pds[1].qp(&cqs[1], QpSpec::rc())];
    for (own, other) in [(0, 1), (1, 0)] {
        let mut attr = qps[own].attr(qps[other].num());
        attr.ah_attr.grh.dgid = ctx[other].gid();
        // Nothing is lost between them: a second packet would only hide that the first was not sent.
        attr.timeout = 18;
        qps[own].bring(IBV_QPS_RTS, &attr);
    }
    run([(&cqs[0], &mrs[0], &qps[0]), (&cqs[1], &mrs[1], &qps[1])]);
}

#[test]
fn an_acknowledgement_does_not_wait_for_an_answer_that_never_comes() {
    talking(|[(here, mr, requester), (there, other_mr, answers)]| {
        for round in 0..20 {
            assert_eq!(answers.recv(Recv::new(round).sge(other_mr.sge(0, 8))), 0);
            assert_eq!(requester.post(Send::message(round).sge(mr.sge(8, 8))), 0);
            there.expect(round, IBV_WC_SUCCESS);
            // From here on this device is not called.
            here.expect(round, IBV_WC_SUCCESS);
        }
    });
}
