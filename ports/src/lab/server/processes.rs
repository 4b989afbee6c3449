//! The processes of a lab: live, departed, and to be killed.

use super::*;

impl LabServer {
    /// Kills the processes of a host (SIGKILL) and removes them. Returns their ids, as seen by this process, and the
    /// number of further ones that it does not see.
    pub fn kill(&mut self, host: u32) -> (Vec<u32>, usize) {
        let ids = self.of_host.get(host as usize).cloned().unwrap_or_default();
        let (mut killed, mut hidden) = (Vec::new(), 0);
        for id in ids {
            let Some(Some(member)) = self.members.get(id) else { continue };
            match sys::kill_peer(member.socket.as_fd()) {
                Some(process) => killed.push(process),
                None => {
                    hidden += 1;
                    continue;
                }
            }
            self.expel(id);
        }
        // One process may have several devices.
        killed.sort_unstable();
        killed.dedup();
        (killed, hidden)
    }

    /// Returns the live processes.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        let alive = |member: &&Member| !member.ended;
        self.members.iter().enumerate().filter_map(move |(id, member)| Some((id, member.as_ref().filter(alive)?)))
    }

    /// Returns the processes that have left, limited to the most recent ones, in order of departure.
    pub fn departed(&self) -> impl DoubleEndedIterator<Item = &Departed> + ExactSizeIterator {
        self.departed.iter()
    }

    /// Receives what processes have sent other than frames, and makes all leave.
    pub fn close(&mut self) {
        (0..self.members.len()).for_each(|id| self.expel(id));
    }

    /// Returns the lateness at processes so far, including those that have ended.
    pub fn lateness(&self) -> Lateness {
        self.members.iter().flatten().map(lateness_of).fold(self.left, Lateness::and)
    }

    /// Lets processes enter and leave. Makes system calls: to be called occasionally, and after each sleep.
    pub fn attend(&mut self) {
        let mut tokens = [0; EVENTS];
        let ready = self.epoll.ready(&mut tokens);
        for &token in &tokens[..ready] {
            if token == LISTENER {
                self.accept();
            } else if token == WAKER {
                sys::hush(self.waker.0.as_fd());
            } else if token == GUEST {
                // What it has sent is collected.
            } else if self.strangers.contains_key(&token) {
                self.hear_stranger(token);
            } else if self.claims.has(token) {
                let released = self.claims.hear(token);
                released.into_iter().for_each(|connection| self.epoll.remove(connection.as_fd()));
            } else {
                self.hear(token as MemberId);
            }
        }
        if self.roll_call.elapsed() >= ROLL_CALL {
            self.roll_call = Instant::now();
            // Those that were not accepted for lack of descriptors.
            self.accept();
            let ended = |member: &Member| !sys::peer_lives(member.socket.as_fd());
            let ended: Vec<_> = self.members().filter(|(_, m)| ended(m)).map(|(id, _)| id).collect();
            ended.into_iter().for_each(|id| self.expel(id));
        }
    }

    /// Reads the wake-ups of a process, and checks whether it has ended.
    pub(super) fn hear(&mut self, id: MemberId) {
        if let Some(Some(member)) = self.members.get_mut(id)
            && !member.hear()
        {
            self.expel(id);
        }
    }

    pub(super) fn expel_corrupt(&mut self) {
        let corrupt: Vec<_> = self.members().filter(|(_, m)| m.corrupt).map(|(id, _)| id).collect();
        for id in corrupt {
            if let Some(Some(member)) = self.members.get(id) {
                eprintln!("irnic: process {} has garbled its ring and leaves the lab", member.process);
            }
            self.expel(id);
        }
    }

    /// Makes a process that has ended leave. What it has sent is still collected.
    pub(super) fn expel(&mut self, id: MemberId) {
        let Some(member) = self.members.get_mut(id).and_then(Option::as_mut).filter(|member| !member.ended) else {
            return;
        };
        member.hear();
        let number = self.departed.back().map_or(0, |last| last.number + 1);
        if self.departed.len() == DEPARTED {
            self.departed.pop_front();
        }
        self.departed.push_back(Departed {
            number,
            host: member.host,
            process: member.process,
            group: member.group,
            slot: member.slot(),
            numbers: member.shown.as_ref().and_then(|shown| shown.sheet.read()).map(Into::into),
        });
        self.epoll.remove(member.socket.as_fd());
        self.of_host[member.host as usize].retain(|other| *other != id);
        let claims = self.claims.forget(member.host, member.slot);
        claims.iter().for_each(|connection| self.epoll.remove(connection.as_fd()));
        (member.ended, self.any_ended) = (true, true);
        if !member.rx.has_frames() {
            self.remove_ended();
        }
    }

    /// Removes ended processes from which everything has been collected.
    #[cold]
    pub(super) fn remove_ended(&mut self) {
        let ended = |member: &&mut Option<Member>| member.as_ref().is_some_and(|m| m.ended && !m.rx.has_frames());
        for member in self.members.iter_mut().filter(ended).filter_map(Option::take) {
            self.left = self.left.and(lateness_of(&member));
        }
        self.order.retain(|id| self.members[*id].is_some());
        self.any_ended = self.members.iter().flatten().any(|member| member.ended);
    }
}
