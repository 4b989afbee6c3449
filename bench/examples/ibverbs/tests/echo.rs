//! The test of an application: its server and its client, each a process, as users start them.

use std::net::TcpListener;
use std::process::{Command, Stdio};

#[test]
fn what_is_sent_comes_back() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").to_string();
    let echo = |role: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_echo"));
        command.args([role, &free]).stdout(Stdio::null());
        command
    };
    let mut server = echo("server").spawn().expect("the server starts");
    // Until the server listens, the client is refused.
    let connected = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        echo("client").stderr(Stdio::null()).status().expect("the client starts").success()
    });
    if !connected {
        let _ = server.kill();
    }
    assert!(server.wait().expect("the server ends").success() && connected);
}
