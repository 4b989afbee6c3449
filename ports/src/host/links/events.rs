//! What the kernel reports of links: processes that connect, speak and end.

use std::os::fd::{AsFd, OwnedFd};

use super::super::config::CrossMemory;
use super::super::holder::Holder;
use super::super::inbound::{Greeting, Heard, greet};
use super::super::slot::Slot;
use super::super::sys;
use super::{Links, MAX_INBOUND, Source};

impl Links {
    /// Handles one event of the kernel.
    pub(in crate::host) fn on_event(&mut self, source: Source, index: u32) {
        match source {
            Source::Listener => self.accept(),
            Source::Outbound => {
                let Some(to) = u16::try_from(index).ok().and_then(Slot::new) else { return };
                self.hear(to);
            }
            Source::Inbound => {
                if let Some(at) = self.pending.iter().position(|(id, _)| *id == index) {
                    let (id, connection) = self.pending.swap_remove(at);
                    self.epoll.remove(connection.as_fd());
                    self.welcome(connection, id);
                } else if let Some(link) = self.inbound.iter_mut().find(|link| link.id == index) {
                    match link.listen(self.cross_memory != CrossMemory::Off) {
                        Heard::WakeUp => self.host.wakeups_taken += 1,
                        Heard::Nothing => {}
                        Heard::End => {
                            let process = link.connection().and_then(sys::peer_process);
                            link.end(&self.epoll);
                            self.ended.add_process(process);
                            self.lost = true;
                        }
                    }
                }
            }
            Source::Udp => {}
        }
    }

    /// Accepts processes that had to wait for lack of descriptors.
    pub(in crate::host) fn accept_late(&mut self) {
        if self.some_wait {
            self.accept();
        }
    }

    /// Accepts the processes that have connected. Those without a free descriptor wait for the next call.
    fn accept(&mut self) {
        self.some_wait = true;
        while let Ok(next) = sys::accept(self.listener.as_fd()) {
            let Some(connection) = next else {
                self.some_wait = false;
                break;
            };
            let room = self.pending.len() + self.inbound.len() < MAX_INBOUND;
            if room && sys::peer_user(connection.as_fd()).is_ok_and(sys::is_own_user) {
                let id = self.new_id();
                self.welcome(connection, id);
            } else {
                self.host.links_refused += 1;
            }
        }
    }

    /// Turns a connection that has sent its hello into a link, or keeps it until it does.
    fn welcome(&mut self, connection: OwnedFd, id: u32) {
        let token = Source::Inbound.token(id);
        match greet(connection, id) {
            Greeting::Pending(connection) => {
                if self.epoll.add(connection.as_fd(), libc::EPOLLIN, token).is_ok() {
                    self.pending.push((id, connection));
                }
            }
            Greeting::Link(mut link) => {
                if link.connection().is_none_or(|c| self.epoll.add(c, libc::EPOLLIN, token).is_err()) {
                    self.host.links_refused += 1;
                    return;
                }
                if !link.give_bell(self.bell.memory()) {
                    link.end(&self.epoll);
                }
                self.inbound.push(link);
            }
            Greeting::Refused => self.host.links_refused += 1,
            Greeting::OtherVersion(connection, theirs) => {
                self.host.links_refused += 1;
                self.report_version(Holder::of_peer(connection.as_fd()), theirs);
            }
        }
    }
}
