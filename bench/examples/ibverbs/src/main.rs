//! Echo between two processes over an RC queue pair, with the `ibverbs` crate.
//!
//! ```text
//! cargo build --release
//! irnic run -- target/release/echo server 127.0.0.1:7471 &
//! irnic run -- target/release/echo client 127.0.0.1:7471
//! ```
//!
//! Nothing in it knows of irnic: without `irnic run` it uses the host's first RDMA device. The crate's safe interface has SEND and
//! receive only; the TCP connection carries what the two must know of each other before they can use them.

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
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", address] => run(TcpListener::bind(address)?.accept()?.0, true),
        ["client", address] => run(TcpStream::connect(address)?, false),
        _ => Err("usage: echo server|client ADDRESS:PORT".into()),
    }
}

/// Connects a queue pair to the one at the other end of `stream`, and uses it.
fn run(stream: TcpStream, server: bool) -> Result<()> {
    let mut peer = BufReader::new(stream);
    let devices = ibverbs::devices()?;
    let context = devices.get(0).ok_or("there is no RDMA device")?.open()?;
    let gid =
        context.gid_table().iter().find(|entry| is_ipv4(entry)).ok_or("the device has no RoCE v2 GID for IPv4")?;
    let cq = context.create_cq(2 * DEPTH as i32, 0)?;
    let pd = context.alloc_pd()?;
    // Declared before the queue pair, and so dropped after it: the device may use it until then.
    let mut memory = pd.allocate::<u8>(2 * DEPTH * SLOT)?;
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
    let mut qp = prepared.handshake(serde_json::from_str(&remote)?)?;
    if server {
        serve(&mut qp, &cq, &mut memory, &mut peer)?
    } else {
        check(&mut qp, &cq, &mut memory, &mut peer)?
    }
    // Who leaves no longer acknowledges: neither does before the other has all that it waits for.
    exchange(&mut peer, "done")?;
    Ok(())
}

/// Sends back each message from where it was received.
fn serve(
    qp: &mut QueuePair,
    cq: &CompletionQueue,
    memory: &mut MemoryRegion<u8>,
    peer: &mut BufReader<TcpStream>,
) -> Result<()> {
    for n in 0..DEPTH {
        // SAFETY: the memory outlives the queue pair, and is not touched before the completion.
        unsafe { qp.post_receive(memory, slot(n, SLOT), n as u64)? };
    }
    exchange(peer, "ready")?;
    let mut left = 2 * DEPTH * SIZES.len();
    while left > 0 {
        left -= poll(cq, |completion| {
            let n = completion.wr_id() as usize;
            // SAFETY: as above; what used this slot has completed.
            unsafe {
                match completion.opcode() {
                    ibv_wc_opcode::IBV_WC_RECV => qp.post_send(memory, slot(n, completion.len()), n as u64)?,
                    _ => qp.post_receive(memory, slot(n, SLOT), n as u64)?,
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Sends messages of each size and compares every byte that comes back.
fn check(
    qp: &mut QueuePair,
    cq: &CompletionQueue,
    memory: &mut MemoryRegion<u8>,
    peer: &mut BufReader<TcpStream>,
) -> Result<()> {
    exchange(peer, "ready")?;
    for size in SIZES {
        for n in 0..DEPTH {
            // A prime period, so that no packet of a message is like another.
            memory[slot(n, size)].iter_mut().enumerate().for_each(|(i, byte)| *byte = ((i + size + n) % 251) as u8);
            // SAFETY: the memory outlives the queue pair; what is sent stays as it is, what is received is read when it is complete.
            unsafe {
                qp.post_receive(memory, slot(DEPTH + n, SLOT), (DEPTH + n) as u64)?;
                qp.post_send(memory, slot(n, size), n as u64)?;
            }
        }
        let mut left = 2 * DEPTH;
        while left > 0 {
            left -= poll(cq, |completion| {
                let n = completion.wr_id() as usize;
                if completion.opcode() != ibv_wc_opcode::IBV_WC_RECV {
                    return Ok(());
                }
                let same = completion.len() == size && memory[slot(n, size)] == memory[slot(n - DEPTH, size)];
                if same { Ok(()) } else { Err(format!("message {n} of {size} bytes came back changed").into()) }
            })?;
        }
        println!("{DEPTH} messages of {size} bytes came back as they were");
    }
    Ok(())
}

/// Hands each completion to `each`; returns their number. None may be an error.
fn poll(cq: &CompletionQueue, mut each: impl FnMut(&ibv_wc) -> Result<()>) -> Result<usize> {
    let mut room = [ibv_wc::default(); 2 * DEPTH];
    let completions = cq.poll(&mut room)?;
    for completion in &*completions {
        if let Some((status, _)) = completion.error() {
            return Err(format!("work request {} ended with status {status}", completion.wr_id()).into());
        }
        each(completion)?;
    }
    Ok(completions.len())
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
