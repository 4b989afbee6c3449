//! Several processes behind one address: this test's own program, started again as [`child`] with a task in its
//! environment.

mod child;
#[path = "../../../nic/tests/common/mod.rs"]
mod common;
mod instructions;
mod nics;
mod peers;
mod wire;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use irnic_ports::host::{HostConfig, HostPort, HostUdp, Slot};
use irnic_ports::{Port, TxFrame};
use irnic_transports::{Path, Time};

/// Nothing here takes this long unless it hangs.
const HANG: Duration = Duration::from_secs(60);

/// Bytes of a frame before those that depend on all the others.
const HEAD: usize = 16;

/// What a test frame says: bytes 5 to 7 are where a BTH has the destination queue pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Note {
    number: u32,
    to: u32,
    reply_to: u32,
    generation: u32,
}

impl Note {
    fn write(&self, out: &mut [u8]) {
        out[0..4].copy_from_slice(&self.number.to_le_bytes());
        out[4..8].copy_from_slice(&self.to.to_be_bytes());
        out[8..12].copy_from_slice(&self.reply_to.to_le_bytes());
        out[12..16].copy_from_slice(&self.generation.to_le_bytes());
        let key = self.number.wrapping_mul(31) ^ self.reply_to ^ self.generation ^ out.len() as u32;
        for (at, byte) in out.iter_mut().enumerate().skip(HEAD) {
            *byte = (key ^ at as u32) as u8;
        }
    }

    /// Reads a frame and checks its every byte.
    fn read(bytes: &[u8]) -> Note {
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let note = Note {
            number: u32::from_le_bytes(word(0)),
            to: u32::from_be_bytes(word(4)),
            reply_to: u32::from_le_bytes(word(8)),
            generation: u32::from_le_bytes(word(12)),
        };
        let mut expected = vec![0; bytes.len()];
        note.write(&mut expected);
        assert!(expected == bytes, "{note:?} of {} bytes differs", bytes.len());
        note
    }
}

/// Queues a frame; false if there is no room.
fn send(port: &mut HostPort, now: Time, path: &Path, note: &Note, len: usize) -> bool {
    let frame = TxFrame { path, dest_qp: note.to, len, icrc: port.needs_icrc(path, note.to), irn: false };
    port.transmit(now, &frame, &mut |out| note.write(out))
}

fn path(src: IpAddr, dst: IpAddr) -> Path {
    Path { src, dst, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 }
}

fn slot(number: u16) -> Slot {
    Slot::new(number).expect("a slot")
}

fn qp_of(number: u16) -> u32 {
    slot(number).first_qpn() + 2
}

fn since(start: Instant) -> Time {
    Time(start.elapsed().as_nanos() as u64)
}

fn config(domain: &str, address: IpAddr, number: u16, udp: HostUdp) -> HostConfig {
    HostConfig::new(domain, vec![address]).with_slot(Some(slot(number))).with_ring_bytes(128 << 10).with_udp(udp)
}

const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A domain that no other test has.
fn fresh_domain() -> String {
    static DOMAINS: AtomicU32 = AtomicU32::new(0);
    format!("host-test-{}-{}", std::process::id(), DOMAINS.fetch_add(1, Ordering::Relaxed))
}

/// One test at a time: they count descriptors, and fill the machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn skipped(test: &str, why: &str) {
    irnic_testkit::skipped(&format!("{test}: {why}"));
}
