//! Echo between two processes that connect by rdma_cm, with the `rdma-sys` crate:
//!
//! ```text
//! irnic run -- cm-echo server 127.0.0.1 7471
//! irnic run -- cm-echo client 127.0.0.1 7471
//! ```
//!
//! Nothing here knows irnic: the same program runs on a NIC. librdmacm's synchronous calls resolve, connect and
//! complete.

use std::ffi::{CString, NulError};
use std::io;
use std::process::ExitCode;
use std::ptr::null_mut;

use rdma_sys::*;

/// Sizes of the messages, each sent to the server and back.
const SIZES: [usize; 6] = [1, 100, 4096, 10_000, 65_536, 1 << 20];
const ROOM: usize = 1 << 20;

/// A failure and the call that it comes from.
type Result<T> = std::result::Result<T, String>;

/// What a call of librdmacm says: 0, or −1 and `errno`.
fn done(call: &str, outcome: i32) -> Result<()> {
    match outcome {
        0.. => Ok(()),
        _ => Err(format!("{call}: {}", io::Error::last_os_error())),
    }
}

/// A connection, or what listens for one.
struct Endpoint(*mut rdma_cm_id);

impl Endpoint {
    /// Resolves an address; a passive endpoint binds it.
    fn new(host: &str, port: &str, passive: bool) -> Result<Endpoint> {
        let text = |e: NulError| e.to_string();
        let (host, port) = (CString::new(host).map_err(text)?, CString::new(port).map_err(text)?);
        // SAFETY: both structures may be all zeroes.
        let (mut hints, mut attr) =
            unsafe { (std::mem::zeroed::<rdma_addrinfo>(), std::mem::zeroed::<ibv_qp_init_attr>()) };
        hints.ai_port_space = rdma_port_space::RDMA_PS_TCP as i32;
        if passive {
            hints.ai_flags = RAI_PASSIVE as i32;
        }
        let mut info = null_mut();
        // SAFETY: strings that end with zero, and two structures that live through the call.
        done("rdma_getaddrinfo", unsafe { rdma_getaddrinfo(host.as_ptr(), port.as_ptr(), &hints, &mut info) })?;
        attr.cap = ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        attr.sq_sig_all = 1;
        attr.qp_type = ibv_qp_type::IBV_QPT_RC;
        let mut id = null_mut();
        // SAFETY: `info` was filled in; no protection domain: librdmacm has one.
        let outcome = unsafe { rdma_create_ep(&mut id, info, null_mut(), &mut attr) };
        // Before anything else changes errno.
        let outcome = done("rdma_create_ep", outcome);
        // SAFETY: of rdma_getaddrinfo.
        unsafe { rdma_freeaddrinfo(info) };
        outcome.map(|()| Endpoint(id))
    }

    /// Waits for a client.
    fn client(&self) -> Result<Endpoint> {
        let mut id = null_mut();
        // SAFETY: listens.
        done("rdma_get_request", unsafe { rdma_get_request(self.0, &mut id) })?;
        Ok(Endpoint(id))
    }

    fn register<'a>(&self, bytes: &'a mut [u8]) -> Result<Buffer<'a>> {
        // SAFETY: the buffer borrows the bytes as long as it is registered.
        let mr = unsafe { rdma_reg_msgs(self.0, bytes.as_mut_ptr().cast(), bytes.len()) };
        if mr.is_null() {
            return Err(format!("rdma_reg_msgs: {}", io::Error::last_os_error()));
        }
        Ok(Buffer { bytes, mr })
    }

    fn post_recv(&self, buffer: &mut Buffer) -> Result<()> {
        let (at, len) = (buffer.bytes.as_mut_ptr(), buffer.bytes.len());
        // SAFETY: registered.
        done("rdma_post_recv", unsafe { rdma_post_recv(self.0, null_mut(), at.cast(), len, buffer.mr) })
    }

    /// Waits for a message; returns its length.
    fn received(&self) -> Result<usize> {
        // SAFETY: may be all zeroes.
        let mut wc = unsafe { std::mem::zeroed::<ibv_wc>() };
        // SAFETY: the endpoint has a queue pair.
        done("rdma_get_recv_comp", unsafe { rdma_get_recv_comp(self.0, &mut wc) })?;
        completed("receiving", &wc).map(|()| wc.byte_len as usize)
    }

    /// Sends a message and waits until the peer has it.
    fn send(&self, buffer: &mut Buffer, len: usize) -> Result<()> {
        let at = buffer.bytes[..len].as_mut_ptr();
        // SAFETY: registered.
        done("rdma_post_send", unsafe { rdma_post_send(self.0, null_mut(), at.cast(), len, buffer.mr, 0) })?;
        // SAFETY: may be all zeroes.
        let mut wc = unsafe { std::mem::zeroed::<ibv_wc>() };
        // SAFETY: the endpoint has a queue pair.
        done("rdma_get_send_comp", unsafe { rdma_get_send_comp(self.0, &mut wc) })?;
        completed("sending", &wc)
    }
}

fn completed(what: &str, wc: &ibv_wc) -> Result<()> {
    match wc.status {
        ibv_wc_status::IBV_WC_SUCCESS => Ok(()),
        status => Err(format!("{what}: completion with status {status}")),
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: made by rdma_create_ep or rdma_get_request, and not destroyed before.
        unsafe { rdma_destroy_ep(self.0) };
    }
}

/// Registered memory.
struct Buffer<'a> {
    bytes: &'a mut [u8],
    mr: *mut ibv_mr,
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: of rdma_reg_msgs.
        unsafe { rdma_dereg_mr(self.mr) };
    }
}

fn server(host: &str, port: &str) -> Result<()> {
    let listener = Endpoint::new(host, port, true)?;
    // SAFETY: bound.
    done("rdma_listen", unsafe { rdma_listen(listener.0, 1) })?;
    let client = listener.client()?;
    let mut room = vec![0; ROOM];
    let mut buffer = client.register(&mut room)?;
    client.post_recv(&mut buffer)?;
    // SAFETY: a request that was not answered yet.
    done("rdma_accept", unsafe { rdma_accept(client.0, null_mut()) })?;
    for (i, _) in SIZES.iter().enumerate() {
        let len = client.received()?;
        let mut answer = buffer.bytes[..len].to_vec();
        // The next message may come as soon as the client has this one.
        if i + 1 < SIZES.len() {
            client.post_recv(&mut buffer)?;
        }
        client.send(&mut client.register(&mut answer)?, len)?;
    }
    // SAFETY: connected. Whoever is second finds the connection gone, which is as good.
    unsafe { rdma_disconnect(client.0) };
    Ok(())
}

fn client(host: &str, port: &str) -> Result<()> {
    let server = Endpoint::new(host, port, false)?;
    let (mut out, mut back) = (vec![0; ROOM], vec![0; ROOM]);
    let (mut out, mut back) = (server.register(&mut out)?, server.register(&mut back)?);
    // SAFETY: resolved.
    done("rdma_connect", unsafe { rdma_connect(server.0, null_mut()) })?;
    for len in SIZES {
        for (i, byte) in out.bytes[..len].iter_mut().enumerate() {
            *byte = (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ len as u8;
        }
        server.post_recv(&mut back)?;
        server.send(&mut out, len)?;
        let received = server.received()?;
        if received != len || back.bytes[..len] != out.bytes[..len] {
            return Err(format!("{len} bytes came back as {received} others"));
        }
        println!("{len} bytes there and back");
    }
    // SAFETY: connected.
    unsafe { rdma_disconnect(server.0) };
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["server", host, port] => server(host, port),
        ["client", host, port] => client(host, port),
        _ => Err("expected: cm-echo server|client HOST PORT".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cm-echo: {e}");
            ExitCode::FAILURE
        }
    }
}
