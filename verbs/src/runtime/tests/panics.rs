//! A panic in the background thread.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use irnic_ports::{Port, RxFrame, TxFrame};

use super::*;

/// Set in the process that panics.
const CHILD: &str = "IRNIC_TEST_PANICS";

/// A port that panics when frames are received.
struct Panicking;

impl Port for Panicking {
    fn max_frame(&self) -> usize {
        4_200
    }

    fn transmit(&mut self, _now: Time, _frame: &TxFrame<'_>, _fill: &mut dyn FnMut(&mut [u8])) -> bool {
        true
    }

    fn flush(&mut self, _now: Time) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, _now: Time, _budget: usize, _each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        panic!("as asked")
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        std::thread::sleep(timeout);
        Ok(())
    }
}

impl DevicePort for Panicking {
    fn host_counters(&self) -> HostCounters {
        HostCounters::default()
    }

    fn claim_service(&self, _service: u64) -> io::Result<Option<ServiceClaim>> {
        Ok(None)
    }
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "an optimised library goes on after a panic")]
fn a_panic_of_the_background_thread_ends_the_process_in_a_debug_build() {
    if std::env::var_os(CHILD).is_some() {
        let device = device(Panicking);
        device.first_unit().start().expect("a thread");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let test = "runtime::tests::panics::a_panic_of_the_background_thread_ends_the_process_in_a_debug_build";
    // It leaves no core dump.
    let mut child = Command::new("sh");
    child.args(["-c", "ulimit -c 0; exec \"$0\" --exact \"$1\" --nocapture"]).arg(std::env::current_exe().unwrap());
    let output = child.arg(test).env(CHILD, "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.lines().any(irnic_testkit::crash::is_panic_of_the_library), "{said}");
}
