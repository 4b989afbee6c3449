//! Entry of processes into a lab: their first requests, and the answers.

use super::*;

impl LabServer {
    pub(super) fn accept(&mut self) {
        while let Ok(Some(socket)) = sys::accept(self.listener.as_fd()) {
            if !sys::peer_user(socket.as_fd()).is_ok_and(sys::is_own_user) {
                continue;
            }
            // Members have the low numbers.
            let token = 1 << 32 | self.next_token;
            self.next_token += 1;
            if self.epoll.add(socket.as_fd(), libc::EPOLLIN, token).is_ok() {
                self.strangers.insert(token, socket);
            }
        }
    }

    pub(super) fn hear_stranger(&mut self, token: u64) {
        let Some(socket) = self.strangers.remove(&token) else { return };
        let mut bytes = [0; 64];
        let message = match sys::receive(socket.as_fd(), &mut bytes) {
            Ok(message) => message,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.strangers.insert(token, socket);
                return;
            }
            Err(_) => return,
        };
        self.epoll.remove(socket.as_fd());
        let Some((request, wish)) = read_hello(&bytes[..message.len]) else { return };
        if request == Request::Clock {
            let answer = self.answer(0, 0).write();
            let _ = sys::send(socket.as_fd(), &answer, &[])
                .and_then(|_| sys::send(socket.as_fd(), &[1], &[self.page_file.as_fd()]));
            return;
        }
        let said = match (self.host_for(&socket, wish), request) {
            (Err(why), _) => Err(why),
            (_, Request::Clock) => return,
            (Ok(host), Request::Assignment) => {
                sys::send(socket.as_fd(), &self.answer(host, 0).write(), &[]).map_err(|e| e.to_string())
            }
            (Ok(host), Request::Service { slot, service }) => return self.claim(token, socket, (host, service), slot),
            (Ok(host), Request::Entry) => match self.let_in(&socket, host) {
                Err(why) => Err(why),
                Ok(()) => {
                    let id = self.members.len() - 1;
                    let Some(Some(member)) = self.members.last_mut() else { return };
                    member.socket = socket;
                    let _ = self.epoll.add(member.socket.as_fd(), libc::EPOLLIN, id as u64);
                    return;
                }
            },
        };
        if let Err(why) = said {
            let _ = sys::send(socket.as_fd(), why.as_bytes(), &[]);
        }
    }

    /// Claims a service for the process of a host that has a slot, for the lifetime of a connection.
    fn claim(&mut self, token: u64, socket: OwnedFd, service: (u32, u64), slot: u16) {
        let has = |member: &&Member| (member.host, member.slot()) == (service.0, slot);
        let Some(owner) = self.members.iter().flatten().find(has).map(|member| (member.slot, member.process)) else {
            let _ =
                sys::send(socket.as_fd(), format!("host {} has no process in slot {slot}", service.0).as_bytes(), &[]);
            return;
        };
        if self.epoll.add(socket.as_fd(), libc::EPOLLIN, token).is_ok()
            && let Some(refused) = self.claims.add(token, socket, service, owner)
        {
            self.epoll.remove(refused.as_fd());
        }
    }

    fn answer(&self, host: u32, slot: u16) -> Answer {
        let (hosts, rate) = (self.of_host.len() as u32, self.rates[host as usize]);
        let assignment = Assignment { host, hosts, rate, addressing: self.addressing };
        Answer { assignment, encapsulation: self.encapsulation, slot, link_is_up: self.links_up[host as usize] }
    }

    /// Returns the host of a process.
    fn host_for(&mut self, socket: &OwnedFd, wish: Wish) -> Result<u32, String> {
        let hosts = self.of_host.len() as u32;
        let open = || (0..hosts).filter(|host| !self.is_guest(*host));
        match wish {
            Wish::Host(host) if host >= hosts => Err(format!("there is no host {host}; expected 0 to {}", hosts - 1)),
            Wish::Host(host) if self.is_guest(host) => Err(format!("host {host} is a guest, which no process can be")),
            Wish::Host(host) => Ok(host),
            Wish::Rank(rank) => {
                let number = (rank as usize).checked_rem(open().count());
                number.and_then(|number| open().nth(number)).ok_or_else(|| "all hosts are guests".into())
            }
            Wish::Any => {
                let process = sys::peer_process(socket.as_fd()).unwrap_or(0);
                if let Some(host) = self.assigned.get(&process).filter(|_| process != 0) {
                    return Ok(*host);
                }
                let mut processes = vec![0; hosts as usize];
                self.assigned.values().for_each(|host| processes[*host as usize] += 1);
                let host = open().min_by_key(|host| processes[*host as usize]).ok_or("all hosts are guests")?;
                self.assigned.insert(process, host);
                Ok(host)
            }
        }
    }

    /// Makes a process a member, whose socket is stored later.
    fn let_in(&mut self, socket: &OwnedFd, host: u32) -> Result<(), String> {
        let place_of = host as usize;
        let taken = |slot: u16| {
            self.of_host[place_of]
                .iter()
                .any(|id| self.members[*id].as_ref().is_some_and(|member| member.slot.number() == slot))
        };
        let last = self.last_slot[place_of];
        let slot = (0..Slot::MAX).map(|n| (last + n) % Slot::MAX + 1).find(|slot| !taken(*slot));
        let slot = slot.and_then(Slot::new).ok_or("all slots of the host are taken")?;
        let failed = |e: io::Error| e.to_string();
        let memory = sys::memory(c"irnic-lab", REGION).map_err(failed)?;
        let region = Arc::new(Region::map(memory.as_fd(), REGION).map_err(failed)?);
        words(&region).need.store(u64::MAX, Ordering::Relaxed);
        let process = sys::peer_process(socket.as_fd()).unwrap_or(0);
        let member = Member {
            host,
            process,
            group: group_of(process),
            slot,
            shown: None,
            socket: socket.try_clone().map_err(failed)?,
            tx: Producer::new(region.clone(), place(false)),
            rx: Consumer::new(region.clone(), place(true)),
            region,
            arrivals: VecDeque::new(),
            taken: 0,
            overrun: 0,
            corrupt: false,
            ended: false,
            presence: Presence::default(),
        };
        let answer = self.answer(host, slot.number());
        sys::send(socket.as_fd(), &answer.write(), &[]).map_err(failed)?;
        sys::send(socket.as_fd(), &[1], &[self.page_file.as_fd()]).map_err(failed)?;
        sys::send(socket.as_fd(), &[1], &[self.brake_file.as_fd()]).map_err(failed)?;
        sys::send(socket.as_fd(), &[1], &[memory.as_fd()]).map_err(failed)?;
        self.last_slot[place_of] = slot.number();
        self.of_host[place_of].push(self.members.len());
        let place = |id: &MemberId| self.members[*id].as_ref().map(|member| (member.host, member.slot.number()));
        let at = self.order.partition_point(|id| place(id) <= Some((host, slot.number())));
        self.order.insert(at, self.members.len());
        self.members.push(Some(member));
        Ok(())
    }
}
