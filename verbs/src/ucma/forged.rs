//! Forged commands of an application: any ids, any lengths, any bytes. For tests and `make fuzz`.
//!
//! Only addresses are valid: each refers to exactly as many bytes as the command claims, so that AddressSanitizer
//! detects accesses beyond. The kernel would check them itself.

use std::mem::offset_of;
use std::os::fd::RawFd;
use std::sync::Once;

use super::abi::*;
use super::address::{Address, IbAddress};
use super::device;

/// Number of files of a run: ids migrate between them and connect to each other.
const FILES: usize = 3;
/// First port: below those that are chosen for ids that request none.
const PORT: u16 = 21_000;

/// Bytes used as choices; zeros at the end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn word(&mut self) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Chooses one element.
    fn of<T: Copy>(&mut self, some: &[T]) -> Option<T> {
        let byte = usize::from(self.byte());
        some.get(byte % some.len().max(1)).copied()
    }
}

/// A command: its body, and the offset of an address in the body.
struct Forged {
    body: Vec<u8>,
    address: Option<usize>,
    /// Number of bytes at the address.
    room: usize,
}

impl Forged {
    fn new<T: Plain>(body: &T) -> Forged {
        let mut bytes = vec![0; size_of::<T>()];
        put(&mut bytes, body);
        Forged { body: bytes, address: None, room: 0 }
    }

    fn with_response<T: Plain>(body: &T, address: usize, room: usize) -> Forged {
        Forged { address: Some(address), room, ..Forged::new(body) }
    }
}

/// The files, and the ids returned by their commands.
struct Forger {
    files: [RawFd; FILES],
    ids: Vec<u32>,
    succeeded: usize,
}

/// Executes the commands chosen by `data`, on files of a device of the loopback interface. Panics if a command does, or
/// if an id or an event outlives its file.
///
/// Returns the number of commands that succeeded.
#[allow(unreachable_pub, reason = "a fuzz target reaches it")]
pub fn forged_commands(data: &[u8]) -> usize {
    on_loopback();
    let mut choices = Choices(data);
    let files = [(); FILES].map(|()| device::open(libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK));
    assert!(files.iter().all(|file| *file >= 0), "no files");
    let mut forger = Forger { files, ids: Vec::new(), succeeded: 0 };
    while !choices.0.is_empty() {
        forger.execute(&mut choices);
    }
    forger.end();
    forger.succeeded
}

/// Makes the process's device the loopback interface's, limited to this host.
pub(super) fn on_loopback() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (name, value) in [("IRNIC_INTERFACE", "lo"), ("IRNIC_PORT", "shm"), ("IRNIC_CONFIG", "/dev/null")] {
            // SAFETY: nothing in this crate reads the environment while other threads run, except through the standard
            // library.
            unsafe { std::env::set_var(name, value) };
        }
    });
}

impl Forger {
    /// Closes the files, and checks that nothing remains.
    fn end(&self) {
        for file in self.files {
            device::close(file);
            let mut state = super::state::state();
            assert!(!state.has(file), "file {file} is still open");
            for id in &self.ids {
                assert!(state.id_of(file, *id).is_err(), "id {id} outlives file {file}");
            }
        }
        for file in self.files {
            // SAFETY: a descriptor of this run.
            unsafe { libc::close(file) };
        }
    }

    fn execute(&mut self, choices: &mut Choices<'_>) {
        let what = choices.byte();
        // Most are like librdmacm's.
        let how = Some(choices.byte()).filter(|how| *how >= 192).unwrap_or(0);
        // Those that exist, and one above.
        let cmd = u32::from(what % 24);
        let file = self.files[usize::from(what / 24) % FILES];
        let mut forged = self.forge(cmd, choices);
        for _ in 0..how % 4 {
            let at = usize::from(choices.byte()) * 2 % forged.body.len();
            forged.body[at] = choices.byte();
        }
        if how & 4 != 0 {
            forged.body.resize(usize::from(choices.byte()) * 2, 0);
        }
        if how & 8 != 0 {
            forged.room = usize::from(choices.byte()) * 2;
        }
        let mut memory = vec![how; forged.room].into_boxed_slice();
        if let Some(place) = forged.address.and_then(|at| forged.body.get_mut(at..at + 8)) {
            let address = if how & 16 != 0 { 0 } else { memory.as_mut_ptr() as u64 };
            place.copy_from_slice(&address.to_ne_bytes());
        } else if let Some(at) = forged.address {
            // Half an address is not an address.
            forged.body.truncate(at);
        }
        let input = forged.body.len() as u16;
        let mut bytes = vec![0; size_of::<Header>()];
        put(&mut bytes, &Header { cmd, input, output: forged.room as u16 });
        bytes.extend(forged.body);
        if how & 32 != 0 {
            bytes.truncate(usize::from(choices.byte()));
        }
        // SAFETY: an address refers to as many bytes as the command claims, or is omitted.
        let done = unsafe { device::command(file, &bytes) };
        if done < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error();
            assert_ne!(errno, Some(libc::EIO), "command {cmd} panics");
        } else {
            assert_eq!(done as usize, bytes.len());
            self.succeeded += 1;
            self.learn(cmd, &memory);
        }
    }

    /// Records the id in a reply.
    fn learn(&mut self, cmd: u32, answer: &[u8]) {
        let id = match cmd {
            command::CREATE_ID | command::JOIN_MCAST => read(answer),
            command::GET_EVENT => {
                let event: EventResp = read(answer);
                if event.event != event::CONNECT_REQUEST {
                    return;
                }
                event.id
            }
            _ => return,
        };
        if self.ids.len() < 64 {
            self.ids.push(id);
        }
    }

    fn id(&self, choices: &mut Choices<'_>) -> u32 {
        choices.of(&self.ids).unwrap_or(u32::MAX)
    }

    fn forge(&self, cmd: u32, choices: &mut Choices<'_>) -> Forged {
        let response = 0;
        match cmd {
            command::CREATE_ID => {
                let ps = choices.of(&[0x0106, 0x0106, 0x0111, 0x013f, 0x0002, 0x1234]).unwrap_or(0);
                let body = CreateId { uid: 1, response, ps, qp_type: choices.byte() % 12, reserved: [0; 5] };
                Forged::with_response(&body, offset_of!(CreateId, response), 4)
            }
            command::DESTROY_ID | command::LEAVE_MCAST => self.id_request(choices, 0, 4),
            command::MIGRATE_ID => {
                let from = choices.of(&self.files).unwrap_or(0);
                self.id_request(choices, from as u32, 4)
            }
            command::QUERY => {
                let option = u32::from(choices.byte() % 4);
                self.id_request(choices, option, size_of::<QueryAddrResp>())
            }
            command::INIT_QP_ATTR => {
                let state = u32::from(choices.byte() % 5);
                self.id_request(choices, state, size_of::<QpAttr>())
            }
            command::GET_EVENT => Forged::with_response(&0_u64, 0, size_of::<EventResp>()),
            command::BIND => {
                let (addr_size, addr) = address(choices);
                Forged::new(&Bind { id: self.id(choices), addr_size, reserved: 0, addr })
            }
            command::RESOLVE_ADDR => {
                let (dst_size, dst_addr) = address(choices);
                let (src_size, src_addr) =
                    if choices.byte().is_multiple_of(4) { address(choices) } else { (0, [0; 128]) };
                let id = self.id(choices);
                Forged::new(&ResolveAddr { id, src_size, dst_size, src_addr, dst_addr, ..zeroed() })
            }
            command::CONNECT => Forged::new(&Connect { conn_param: param(choices), id: self.id(choices), ..zeroed() }),
            command::ACCEPT => {
                Forged::new(&Accept { uid: 2, conn_param: param(choices), id: self.id(choices), ..zeroed() })
            }
            command::REJECT => {
                let (private_data_len, reason) = (choices.byte(), choices.byte());
                Forged::new(&Reject { id: self.id(choices), private_data_len, reason, ..zeroed() })
            }
            command::SET_OPTION => {
                let (level, optname) = (u32::from(choices.byte() % 3), u32::from(choices.byte() % 5));
                let optlen = choices.of(&[1, 4, 1, 4, 0, 80, 1000]).unwrap_or(0);
                let body = SetOption { optval: 0, id: self.id(choices), level, optname, optlen };
                Forged::with_response(&body, offset_of!(SetOption, optval), optlen as usize)
            }
            command::JOIN_MCAST => {
                let (addr_size, addr) = address(choices);
                let id = self.id(choices);
                let body = JoinMcast { response, uid: 3, id, addr_size, join_flags: 0, addr };
                Forged::with_response(&body, offset_of!(JoinMcast, response), 4)
            }
            _ => Forged::new(&OfId { id: self.id(choices), value: u32::from(choices.byte()) }),
        }
    }

    fn id_request(&self, choices: &mut Choices<'_>, value: u32, room: usize) -> Forged {
        let body = IdRequest { response: 0, id: self.id(choices), value };
        Forged::with_response(&body, offset_of!(IdRequest, response), room)
    }
}

/// Returns a socket address of this host, a group or a GID, or arbitrary bytes.
fn address(choices: &mut Choices<'_>) -> (u16, [u8; 128]) {
    let mut bytes = [0; 128];
    let port = PORT + u16::from(choices.byte() % 6);
    let ip = match choices.byte() % 8 {
        0 | 1 => [127, 0, 0, 1],
        2 => [0; 4],
        3 => [127, 0, 0, choices.byte()],
        4 => [239, 1, 2, choices.byte()],
        5 => {
            let gid = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
            let (service, mask) = (0x0106_0000 + u64::from(port), u64::from(choices.word()));
            let size = Address::Ib(IbAddress { pkey: 0xffff, gid, service, mask }).emit(&mut bytes);
            return (size, bytes);
        }
        6 => {
            let size = Address::Ip((std::net::Ipv6Addr::LOCALHOST, port).into()).emit(&mut bytes);
            return (size, bytes);
        }
        _ => {
            bytes[..28].fill_with(|| choices.byte());
            return (choices.byte().into(), bytes);
        }
    };
    (Address::Ip((ip, port).into()).emit(&mut bytes), bytes)
}

fn param(choices: &mut Choices<'_>) -> ConnParam {
    let mut param = ConnParam { qp_num: choices.word(), valid: choices.byte() % 4, ..zeroed() };
    param.private_data_len = choices.byte();
    (param.responder_resources, param.retry_count) = (choices.byte(), choices.byte());
    param
}
