//! Echo between two processes over an RC queue pair, with the `ibverbs` crate.
//!
//! ```text
//! cargo build --release
//! irnic run -- target/release/echo server 127.0.0.1:7471 &
//! irnic run -- target/release/echo client 127.0.0.1:7471
//! ```
//!
//! Nothing in it knows of irnic: without `irnic run` it uses the host's first RDMA device. The crate's safe interface
//! has SEND and receive only; the TCP connection carries what the two must know of each other before they can use them.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;

use ibverbs::{CompletionQueue, GidEntry, MemoryRegion, QueuePair, ibv_qp_type, ibv_wc, ibv_wc_opcode};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes in a message: less than a packet, whole packets, many packets, and odd ends.
const SIZES: [usize; 6] = [1, 64, 1000, 4096, 100_001, SLOT];
/// Messages that are under way at a time.
const DEPTH: usize = 4;
/// Bytes of memory for each message.
const SLOT: usize = 1 << 20;
/// `IBV_GID_TYPE_ROCE_V2`, which the crate does not export.
const ROCE_V2: u32 = 2;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", address] => run(TcpListener::bind(address)?.accept()?.0, true),
        ["client", address] => run(TcpStream::connect(address)?, false),
        _ => Err("usage: echo server|client ADDRESS:PORT".into()),
    }
}

/// One end of a connection. What is declared first is dropped first: the device may use the memory while there is a
/// queue pair.
struct End<'a> {
    qp: QueuePair<'a>,
    memory: MemoryRegion<u8>,
    cq: &'a CompletionQueue<'a>,
}

/// Connects a queue pair to the one at the other end of `stream`, and uses it.
fn run(stream: TcpStream, server: bool) -> Result<()> {
    let mut peer = BufReader::new(stream);
    let devices = ibverbs::devices()?;
    let context = devices.get(0).ok_or("there is no RDMA device")?.open()?;
    let gid = context.gid_table().iter().find(|gid| is_ipv4(gid)).ok_or("the device has no RoCE v2 GID for IPv4")?;
    let cq = context.create_cq(2 * DEPTH as i32, 0)?;
    let pd = context.alloc_pd()?;
    let memory = pd.allocate(2 * DEPTH * SLOT)?;
    let prepared = pd
        .create_qp(&cq, &cq, ibv_qp_type::IBV_QPT_RC)
        .set_gid_index(gid.gid_index)
        .set_max_send_wr(DEPTH as u32)
        .set_max_recv_wr(DEPTH as u32)
        // 4.096 µs · 2^14 = 67 ms until a lost packet is repeated; the crate's 66 µs is less than a busy host may take.
        .set_timeout(14)
        // Without end, until the peer has posted a receive.
        .set_rnr_retry(7)
        .build()?;
    let remote = exchange(&mut peer, &serde_json::to_string(&prepared.endpoint())?)?;
    let mut end = End { qp: prepared.handshake(serde_json::from_str(&remote)?)?, memory, cq: &cq };
    // Nobody sends before the other's queue pair is ready.
    exchange(&mut peer, "ready")?;
    if server {
        end.serve()?
    } else {
        end.check()?
    }
    // Who leaves no longer acknowledges: neither does before the other has all that it waits for.
    exchange(&mut peer, "done")?;
    Ok(())
}

impl End<'_> {
    /// Sends back each message from where it was received.
    fn serve(&mut self) -> Result<()> {
        for n in 0..DEPTH {
            self.receive(n)?;
        }
        for _ in 0..2 * DEPTH * SIZES.len() {
            let done = self.completion()?;
            let n = done.wr_id() as usize;
            if done.opcode() == ibv_wc_opcode::IBV_WC_RECV { self.send(n, done.len())? } else { self.receive(n)? }
        }
        Ok(())
    }

    /// Sends messages of each size and compares every byte that comes back.
    fn check(&mut self) -> Result<()> {
        for size in SIZES {
            for n in 0..DEPTH {
                // A prime period, so that no packet of a message is like the next.
                (0..size).for_each(|i| self.memory[n * SLOT + i] = ((i + size + n) % 251) as u8);
                self.receive(DEPTH + n)?;
                self.send(n, size)?;
            }
            for _ in 0..2 * DEPTH {
                let done = self.completion()?;
                let n = done.wr_id() as usize;
                if done.opcode() == ibv_wc_opcode::IBV_WC_RECV
                    && (done.len() != size || self.memory[slot(n, size)] != self.memory[slot(n - DEPTH, size)])
                {
                    return Err(format!("message {} of {size} bytes came back changed", n - DEPTH).into());
                }
            }
            println!("{DEPTH} messages of {size} bytes came back as they were");
        }
        Ok(())
    }

    fn receive(&mut self, n: usize) -> Result<()> {
        // SAFETY: the memory outlives the queue pair, and this slot is not touched before the completion.
        unsafe { self.qp.post_receive(&mut self.memory, slot(n, SLOT), n as u64)? };
        Ok(())
    }

    fn send(&mut self, n: usize, size: usize) -> Result<()> {
        // SAFETY: the memory outlives the queue pair, and this slot is not written before the completion.
        unsafe { self.qp.post_send(&mut self.memory, slot(n, size), n as u64)? };
        Ok(())
    }

    /// The next completion, for which it spins; an error if the work request failed.
    fn completion(&self) -> Result<ibv_wc> {
        let mut room = [ibv_wc::default()];
        while self.cq.poll(&mut room)?.is_empty() {}
        match room[0].error() {
            None => Ok(room[0]),
            Some((status, _)) => Err(format!("work request {} ended with status {status}", room[0].wr_id()).into()),
        }
    }
}

/// Where the first `size` bytes of a message are in the memory.
fn slot(n: usize, size: usize) -> Range<usize> {
    n * SLOT..n * SLOT + size
}

/// Whether this is the GID of an IPv4 address, `::ffff:a.b.c.d`.
fn is_ipv4(entry: &GidEntry) -> bool {
    entry.gid_type == ROCE_V2 && entry.gid.subnet_prefix() == 0 && entry.gid.interface_id() >> 32 == 0xffff
}

/// Tells the peer a line and waits for the peer's.
fn exchange(peer: &mut BufReader<TcpStream>, line: &str) -> Result<String> {
    peer.get_mut().write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    peer.read_line(&mut answer)?;
    if answer.is_empty() { Err("the peer has gone".into()) } else { Ok(answer) }
}
