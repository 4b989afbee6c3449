//! A process that runs out of memory is told so by NULL and ENOMEM, and goes on.
//!
//! Each case is a process of its own (this test again), which limits its address space and makes objects until it gets
//! no more.

use std::ffi::c_int;
use std::process::Command;
use std::ptr::null_mut;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;

/// What a process is to make, and how many KiB it may have for that.
const TASK: &str = "EXHAUSTION_TEST_TASK";

/// Objects that fit nowhere near the limits given here.
const MANY: usize = 200_000;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Leaves this process `kib` more than it has.
fn limit(kib: u64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("VmSize");
    let size: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
    let bytes = (size + kib) << 10;
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

fn device() -> *mut ibv_context {
    // SAFETY: a list that is not freed.
    unsafe { ibv_open_device(*ibv_get_device_list(null_mut())) }
}

/// Makes one object more; NULL if it cannot be had.
type Make = Box<dyn FnMut() -> *mut ()>;

fn maker(what: &str, context: *mut ibv_context) -> Make {
    // SAFETY: all objects live as long as the process.
    unsafe {
        let pd = ibv_alloc_pd(context);
        let cq = ibv_create_cq(context, 8, null_mut(), null_mut(), 0);
        assert!(!pd.is_null() && !cq.is_null());
        let qp = move |sends: u32, sges: u32, inline: u32| {
            let mut init: ibv_qp_init_attr = std::mem::zeroed();
            (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
            (init.cap.max_send_wr, init.cap.max_recv_wr) = (sends, sends);
            (init.cap.max_send_sge, init.cap.max_recv_sge) = (sges, sges);
            init.cap.max_inline_data = inline;
            ibv_create_qp(pd, &mut init).cast()
        };
        match what {
            "pd" => Box::new(move || ibv_alloc_pd(context).cast()),
            "qp" => Box::new(move || qp(16, 2, 64)),
            "large qp" => Box::new(move || qp(16_384, 16, 512)),
            "cq" => Box::new(move || ibv_create_cq(context, 100, null_mut(), null_mut(), 0).cast()),
            "large cq" => Box::new(move || ibv_create_cq(context, 1 << 16, null_mut(), null_mut(), 0).cast()),
            "srq" => Box::new(move || {
                let mut init: ibv_srq_init_attr = std::mem::zeroed();
                (init.attr.max_wr, init.attr.max_sge) = (4096, 8);
                ibv_create_srq(pd, &mut init).cast()
            }),
            "mr" => {
                let byte = Box::leak(Box::new([0_u8; 64]));
                let rights = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) as c_int;
                Box::new(move || ibv_reg_mr(pd, byte.as_mut_ptr().cast(), 64, rights).cast())
            }
            "channel" => Box::new(move || ibv_create_comp_channel(context).cast()),
            "resize" => {
                let mut entries = 64;
                Box::new(move || {
                    entries *= 2;
                    // It may say that there are no larger ones; the test wants to hear of memory.
                    if ibv_resize_cq(cq, entries) == 0 { cq.cast() } else { null_mut() }
                })
            }
            _ => panic!("{what:?}"),
        }
    }
}

/// Where the processes begin; passes at once when run as a test.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (what, kib) = task.split_once(':').expect("a task");
    let kib = kib.parse().expect("a number");
    if what == "open" {
        limit(kib);
        let context = device();
        let errno = errno();
        assert!(!context.is_null() || errno == libc::ENOMEM, "{errno}");
        // SAFETY: ends the process, whose memory may not be enough for more.
        unsafe { libc::_exit(if context.is_null() { 10 } else { 11 }) };
    }
    let context = device();
    assert!(!context.is_null());
    let mut make = maker(what, context);
    assert!(!make().is_null(), "errno {}", errno());
    limit(kib);
    let refused = (0..MANY).find_map(|_| make().is_null().then(errno));
    // SAFETY: ends the process, whose memory may not be enough for more.
    unsafe { libc::_exit(if refused == Some(libc::ENOMEM) { 10 } else { 12 }) };
}

/// Runs a case; returns the status that the process ended with.
fn run(what: &str, kib: u64) -> i32 {
    let ended = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture"])
        .env(TASK, format!("{what}:{kib}"))
        // Or threads have 64 MiB each before the limit is felt.
        .env("MALLOC_ARENA_MAX", "1")
        .env("IRNIC_DEVICE", "exhaustion0")
        .env("IRNIC_ADDRESSES", "127.0.61.1")
        .output()
        .expect("this program runs");
    let said = || String::from_utf8_lossy(&ended.stderr).into_owned();
    ended.status.code().unwrap_or_else(|| panic!("{what} with {kib} KiB: {}\n{}", ended.status, said()))
}

#[test]
fn objects_that_do_not_fit_are_refused_with_enomem() {
    for what in ["pd", "qp", "large qp", "cq", "large cq", "srq", "mr", "resize"] {
        for kib in [100, 400, 3_000] {
            assert_eq!(run(what, kib), 10, "{what} with {kib} KiB");
        }
    }
    // With more memory descriptors run out first.
    assert_eq!(run("channel", 100), 10);
}

#[test]
fn a_device_that_does_not_fit_is_refused_with_enomem() {
    let ended: Vec<i32> = (0..30).map(|i| run("open", 200 * i)).collect();
    assert!(ended.iter().all(|status| [10, 11].contains(status)), "{ended:?}");
    assert!(ended.contains(&10) && ended.contains(&11), "{ended:?}");
}
