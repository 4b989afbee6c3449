//! The ends of the network: NICs are asked for packets, given packets, woken, and posted to.

use irnic_nic::frame::{Icrc, emit_frame, receive_frame_with};
use irnic_nic::frame::{RxFrame, RxIcrc};
use irnic_transports::qp::{Wc, WcOpcode};
use irnic_transports::telemetry::Int;
use irnic_transports::{Payload, RxPacket, Sideband, Time};

use super::{ENCAPSULATION, Event, HeaderBytes, Quit, SimError, Simulation, mix};
use crate::host::{Host, host_of, succeeded};
use crate::packet::{Content, Packet, PacketId};

impl Simulation {
    /// Asks a NIC for a packet.
    #[inline]
    pub(super) fn next_of_host(&mut self, host: u32, stopped: u8) -> Option<PacketId> {
        let Simulation { hosts, packets, config, totals, observer, ports, now, .. } = self;
        let Host { nic, port, .. } = &mut hosts[host as usize];
        nic.set_stopped(stopped);
        if !nic.wants_tx() {
            return None;
        }
        let mut taken = None;
        nic.poll_transmit(Time(*now), 1, |packet| {
            let payload = packet.payload.len() as u32;
            let wire = match config.headers {
                HeaderBytes::Real => packet.headers.frame_len(payload as usize) as u32 + ENCAPSULATION,
                HeaderBytes::Fixed(bytes) => payload + bytes,
            } + packet.sideband.telemetry.map_or(0, |_| Int::LEN);
            let frame = config.carry_bytes.then(|| {
                let mut frame = vec![0; packet.headers.frame_len(payload as usize)];
                emit_frame(packet, Some(packet.path), &mut frame);
                frame.into_boxed_slice()
            });
            let dst = host_of(packet.path.dst);
            let entropy = mix(host ^ mix(dst ^ mix(u32::from(packet.path.udp_src))));
            totals.injected(*now, wire);
            if let Some(observer) = observer {
                observer.sent(*now, ports[*port as usize].rate, dst, packet.headers, payload);
            }
            let id = packets.add(
                Packet::new(wire, dst, entropy, packet.path.traffic_class >> 5),
                Content { headers: *packet.headers, path: *packet.path, payload, sent: *now, frame },
            );
            if let Some(int) = packet.sideband.telemetry {
                packets.set_telemetry(id, *int);
            }
            taken = Some(id);
            false
        });
        self.schedule(host);
        taken
    }

    /// Sees to it that a NIC is woken for its next deadline.
    #[inline]
    fn schedule(&mut self, host: u32) {
        let h = &mut self.hosts[host as usize];
        let deadline = h.nic.next_deadline().0;
        if deadline < h.wakes {
            h.wakes = deadline.max(self.now);
            self.agenda.push(h.wakes, Event::Deadline(host));
        }
    }

    /// A packet has reached its host.
    pub(super) fn deliver(&mut self, host: u32, id: PacketId) -> Result<(), SimError> {
        let now = Time(self.now);
        let content = self.packets.content(id);
        let sideband = Sideband { telemetry: self.packets.telemetry(id), ..Sideband::NONE };
        let nic = &mut self.hosts[host as usize].nic;
        match &content.frame {
            None => {
                let packet = RxPacket {
                    headers: &content.headers,
                    path: &content.path,
                    payload: Payload::Len(content.payload),
                    arrived: now,
                    sideband,
                };
                nic.receive(now, &packet);
            }
            Some(bytes) => {
                let frame = RxFrame { path: content.path, bytes, arrived: now, icrc: RxIcrc::Exact };
                receive_frame_with(nic, now, &frame, Icrc::Checked, sideband);
            }
        }
        if let Some(observer) = &mut self.observer {
            observer.arrived(self.now, host, &content.headers, content.payload);
        }
        self.totals.delivered(self.now, content.sent, self.packets.get(id).wire, content.payload);
        self.packets.remove(id);
        self.after_host(host)
    }

    /// A NIC may have completions, something to send, and a new deadline.
    #[inline]
    pub(super) fn after_host(&mut self, host: u32) -> Result<(), SimError> {
        let mut wcs = [Wc::EMPTY; 8];
        loop {
            let n = self.hosts[host as usize].poll(&mut wcs);
            for wc in &wcs[..n] {
                let flow = wc.wr_id as u32;
                if !succeeded(wc) {
                    return Err(SimError::Failed { flow, status: format!("{:?}", wc.status), at: self.now });
                }
                match wc.opcode {
                    WcOpcode::RecvRdmaWithImm => self.flows.delivered(flow, self.now, &mut self.hosts)?,
                    _ => self.flows.acknowledged(flow, self.now, &mut self.hosts)?,
                }
            }
            if n < wcs.len() {
                break;
            }
        }
        self.schedule(host);
        self.start(self.hosts[host as usize].port);
        Ok(())
    }

    /// Posts the flows that are due, and sees to it that the next are posted.
    pub(super) fn start_flows(&mut self) -> Result<(), SimError> {
        while let Some(host) = self.flows.start_next(self.now, &self.config, &mut self.hosts)? {
            if let (Some(observer), Some((flow, [source, sink]))) = (&mut self.observer, self.flows.newest()) {
                observer.connected(flow, source, sink);
            }
            self.after_host(host)?;
        }
        if let Some(at) = self.flows.next_start() {
            self.agenda.push(at, Event::Start);
        }
        Ok(())
    }

    /// Flows that are due to end do, and the next are seen to.
    pub(super) fn quit_flows(&mut self) -> Result<(), SimError> {
        while let Some(&Quit { at, flow }) = self.config.quits.get(self.next_quit) {
            if at > self.now {
                self.agenda.push(at, Event::Quit);
                break;
            }
            self.next_quit += 1;
            self.flows.quit(flow, &mut self.hosts)?;
        }
        Ok(())
    }
}
