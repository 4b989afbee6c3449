//! A queue pair that is connected with itself: the least that a program on the `ibverbs` crate has to do, with the
//! crate's defaults.
//!
//! ```text
//! irnic run -- target/release/loopback
//! ```

use std::error::Error;

use ibverbs::{ibv_qp_type, ibv_wc, ibv_wc_opcode};

const MESSAGES: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let devices = ibverbs::devices()?;
    let context = devices.get(0).ok_or("there is no RDMA device")?.open()?;
    let cq = context.create_cq(2, 0)?;
    let pd = context.alloc_pd()?;
    let mut memory = pd.allocate::<u64>(2)?;
    let prepared = pd.create_qp(&cq, &cq, ibv_qp_type::IBV_QPT_RC).set_gid_index(0).build()?;
    let itself = prepared.endpoint();
    let mut qp = prepared.handshake(itself)?;

    for n in 1..=MESSAGES {
        memory[0] = n as u64;
        // SAFETY: the memory outlives the queue pair, and is not touched before both have completed.
        unsafe {
            qp.post_receive(&mut memory, 1.., 0)?;
            qp.post_send(&mut memory, ..1, 0)?;
        }
        let (mut sent, mut received) = (false, false);
        while !(sent && received) {
            let mut room = [ibv_wc::default()];
            for done in cq.poll(&mut room)? {
                if let Some((status, _)) = done.error() {
                    return Err(format!("message {n} ended with status {status}").into());
                }
                if done.opcode() == ibv_wc_opcode::IBV_WC_RECV { received = true } else { sent = true }
            }
        }
        if memory[1] != memory[0] {
            return Err(format!("{:#x} arrived as {:#x}", memory[0], memory[1]).into());
        }
    }
    println!("{MESSAGES} messages arrived as they were sent");
    Ok(())
}
