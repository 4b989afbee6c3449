//! Captured exchanges of the kernel's communication manager (rxe, Linux 6.12), played against either side: managers
//! give the same answers, field by field. Only fields chosen by a message's sender may differ: communication ids and
//! request ids, starting PSNs, flow labels, and the transaction ids of messages that are no answers.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use common::data;
use irnic_cm::{Cm, CmConfig, CmId, ConnParam, EventKind, PortSpace, QpKind, Route};
use irnic_transports::time::MS;
use irnic_transports::wire::ip::parse_ethernet;
use irnic_transports::wire::mad::{GSI_QPN, Mad, Message, Rep, Req, SidrRep, SidrReq};
use irnic_transports::wire::{Mtu, parse};
use irnic_transports::{Path as NetPath, Time};
use pcap_file::pcap::PcapReader;

/// Returns the MADs of a capture with their paths.
fn mads(file: &Path) -> Vec<(NetPath, Mad)> {
    let mut reader = PcapReader::new(File::open(file).expect("a readable file")).expect("a capture");
    let mut mads = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a whole packet");
        let Ok(datagram) = parse_ethernet(&packet.data) else { continue };
        let (headers, payload) = parse(datagram.frame).expect("a packet");
        if headers.bth.dest_qp == GSI_QPN {
            mads.push((datagram.path, Mad::parse(payload).expect("a message")));
        }
    }
    mads
}

fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/rxe-pcaps");
    let entries = fs::read_dir(folder).expect("the fixtures").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "pcap")).collect();
    files.sort();
    files.retain(|file| !mads(file).is_empty());
    files
}

#[derive(Default)]
struct Connection {
    id: Option<CmId>,
    /// The communication id that the kernel chose, and the manager's.
    theirs: Option<u32>,
    ours: Option<u32>,
}

/// One end of a captured exchange, with a manager in place of the kernel's.
struct End {
    cm: Cm,
    /// By the communication id of the captured REQ.
    connections: BTreeMap<u32, Connection>,
    /// The captured connection that is the subject.
    now: u32,
    /// Transaction ids that the kernel chose, and the manager's.
    tids: Vec<(u64, u64)>,
    path: NetPath,
}

impl End {
    fn new(guid: u64, path: NetPath) -> End {
        let config = CmConfig::new([5; 32], guid, 1 << 22, 1 << 22);
        End { cm: Cm::new(config), connections: BTreeMap::new(), now: 0, tids: Vec::new(), path }
    }

    /// Returns the connection that is the subject.
    fn connection(&mut self) -> &mut Connection {
        self.connections.entry(self.now).or_default()
    }

    fn id(&mut self) -> CmId {
        self.connection().id.expect("asked")
    }

    /// Receives a captured message of the other end, addressed to the manager's communication id.
    fn receive(&mut self, now: Time, path: &NetPath, mad: &Mad) {
        let mut mad = *mad;
        let c = self.connection();
        if let (Some(ours), Some(id)) = (c.ours, addressee(&mut mad.message)) {
            assert_eq!(Some(*id), c.theirs);
            *id = ours;
        }
        if let Some(&(_, ours)) = self.tids.iter().find(|(theirs, _)| *theirs == mad.tid) {
            mad.tid = ours;
        }
        self.cm.receive(now, path, &mad.to_bytes());
    }

    /// Compares the manager's message with the kernel's.
    fn compare(&mut self, name: &str, captured: &Mad) {
        let (path, bytes) = self.cm.poll_mad().unwrap_or_else(|| panic!("{name}: no answer, captured {captured:?}"));
        let mut mad = Mad::parse(&bytes).expect("a message");
        let answers = !matches!(captured.message, Message::Req(_) | Message::SidrReq(_) | Message::Dreq(_));
        if !answers && self.tids.iter().all(|&(_, ours)| ours != mad.tid) {
            self.tids.push((captured.tid, mad.tid));
        }
        if let Some(&(theirs, _)) = self.tids.iter().find(|&&(_, ours)| ours == mad.tid) {
            mad.tid = theirs;
        }
        let (chosen, theirs) = choices(&mut mad.message, captured);
        if let Some(id) = chosen {
            let c = self.connection();
            match c.ours {
                Some(ours) => assert_eq!(*id, ours, "{name}: one communication id for the connection"),
                None => (c.ours, c.theirs) = (Some(*id), theirs),
            }
            *id = theirs.expect("of the same kind");
        }
        assert_eq!(mad, *captured, "{name}");
        assert_eq!(mad.to_bytes(), captured.to_bytes(), "{name}");
        assert_eq!((path.src, path.dst), (self.path.src, self.path.dst), "{name}");
        assert!(self.cm.poll_mad().is_none(), "{name}: one message");
    }
}

/// Returns the receiver's communication id in a message.
fn addressee(message: &mut Message) -> Option<&mut u32> {
    match message {
        Message::Rep(m) => Some(&mut m.remote_comm_id),
        Message::Rtu(m) => Some(&mut m.remote_comm_id),
        Message::Rej(m) => Some(&mut m.remote_comm_id),
        Message::Dreq(m) => Some(&mut m.remote_comm_id),
        Message::Drep(m) => Some(&mut m.remote_comm_id),
        Message::SidrRep(m) => Some(&mut m.request_id),
        _ => None,
    }
}

/// Adopts the sender's choices except its communication id, which is returned with the captured one.
fn choices<'a>(message: &'a mut Message, captured: &Mad) -> (Option<&'a mut u32>, Option<u32>) {
    match (message, captured.message) {
        (Message::Req(m), Message::Req(c)) => {
            m.fields.starting_psn = c.fields.starting_psn;
            m.primary.flow_label = c.primary.flow_label;
            (Some(&mut m.fields.local_comm_id), Some(c.fields.local_comm_id))
        }
        (Message::Rep(m), Message::Rep(c)) => {
            m.starting_psn = c.starting_psn;
            (Some(&mut m.local_comm_id), Some(c.local_comm_id))
        }
        (Message::Rtu(m), Message::Rtu(c)) => (Some(&mut m.local_comm_id), Some(c.local_comm_id)),
        (Message::Dreq(m), Message::Dreq(c)) => (Some(&mut m.local_comm_id), Some(c.local_comm_id)),
        (Message::Drep(m), Message::Drep(c)) => (Some(&mut m.local_comm_id), Some(c.local_comm_id)),
        (Message::SidrReq(m), Message::SidrReq(c)) => (Some(&mut m.request_id), Some(c.request_id)),
        _ => (None, None),
    }
}

/// Returns the socket addresses in the private data: version 0, IPv4.
fn sockets(private_data: &[u8], service_id: u64) -> (SocketAddr, SocketAddr) {
    assert_eq!(private_data[..2], [0, 0x40]);
    let v4 = |at: usize| -> [u8; 4] { private_data[at..at + 4].try_into().expect("four bytes") };
    let port = u16::from_be_bytes([private_data[2], private_data[3]]);
    (SocketAddr::from((v4(16), port)), SocketAddr::from((v4(32), service_id as u16)))
}

/// Has a manager send the kernel's request.
fn ask_connection(end: &mut End, now: Time, req: &Req) {
    let fields = &req.fields;
    let (src, dst) = sockets(&req.private_data, fields.service_id);
    let path = NetPath { traffic_class: req.primary.traffic_class, hop_limit: req.primary.hop_limit, ..end.path };
    let mut param = ConnParam::new(fields.local_qpn);
    (param.srq, param.flow_control) = (fields.srq, fields.flow_control);
    (param.responder_resources, param.initiator_depth) = (fields.responder_resources, fields.initiator_depth);
    (param.retry_count, param.rnr_retry_count) = (fields.retry_count, fields.rnr_retry_count);
    param.private_data = data(&req.private_data[36..]);
    let id = end.cm.create(PortSpace::Tcp, QpKind::Rc).expect("an id");
    end.cm.resolve(id, Route::new(src, dst, path, req.path_mtu().expect("an MTU"))).expect("resolved");
    end.cm.connect(now, id, &param).expect("under way");
    end.connection().id = Some(id);
}

/// Has a manager accept as the kernel did.
fn accept(end: &mut End, now: Time, rep: &Rep) {
    let mut param = ConnParam::new(rep.local_qpn);
    (param.srq, param.flow_control, param.rnr_retry_count) = (rep.srq, rep.flow_control, rep.rnr_retry_count);
    (param.responder_resources, param.initiator_depth) = (rep.responder_resources, rep.initiator_depth);
    param.private_data = data(&rep.private_data);
    let id = end.id();
    end.cm.accept(now, id, Some(&param)).expect("accepted");
}

/// Returns four bytes of a message.
fn mad_word(mad: &Mad, at: usize) -> u32 {
    u32::from_be_bytes(*mad.to_bytes()[at..].first_chunk().expect("four bytes"))
}

/// Creates a listener for a captured request.
fn listen(cm: &mut Cm, space: PortSpace, kind: QpKind, addr: SocketAddr) {
    let id = cm.create(space, kind).expect("an id");
    cm.bind(id, addr, false).expect("bound");
    cm.listen(id, 0).expect("listening");
}

/// Takes a manager's event, which must be of this kind.
fn event(end: &mut End, kind: EventKind) {
    let event = end.cm.poll_event().expect("an event");
    assert_eq!(event.kind, kind, "{event:?}");
    assert_eq!(*end.connection().id.get_or_insert(event.id), event.id);
}

/// Plays a capture: each captured message is compared with that of its sender's manager, and delivered to the other
/// end's.
fn play(file: &Path) -> usize {
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    let mads = mads(file);
    let guids: Vec<u64> = mads
        .iter()
        .filter_map(|(_, mad)| match mad.message {
            Message::Rep(rep) => Some(rep.local_ca_guid),
            _ => None,
        })
        .collect();
    let (path, first) = mads[0];
    let back = NetPath { src: path.dst, dst: path.src, ..path };
    let guid = match first.message {
        Message::Req(req) => req.fields.local_ca_guid,
        _ => 1,
    };
    let mut ends = [End::new(guid, path), End::new(guids.first().copied().unwrap_or(2), back)];
    let refused = mads.iter().any(|(_, mad)| matches!(mad.message, Message::Rej(_)));
    let mut now = Time(MS);
    let mut listens = false;
    for (path, mad) in &mads {
        now += MS;
        let from = usize::from(path.src != ends[0].path.src);
        let connection = match (mad.message, from) {
            (Message::SidrReq(SidrReq { request_id, .. }) | Message::SidrRep(SidrRep { request_id, .. }), _) => {
                request_id
            }
            // In all others the first word is the sender's, the second the receiver's.
            (_, 0) => mad_word(mad, 24),
            _ => mad_word(mad, 28),
        };
        ends.iter_mut().for_each(|end| end.now = connection);
        let end = &mut ends[from];
        let id = end.connection().id;
        // The application acts as captured.
        match mad.message {
            Message::Req(req) => {
                ask_connection(end, now, &req);
                let (_, dst) = sockets(&req.private_data, req.fields.service_id);
                if !refused && !std::mem::replace(&mut listens, true) {
                    listen(&mut ends[1].cm, PortSpace::Tcp, QpKind::Rc, dst);
                }
            }
            Message::Rep(rep) => accept(end, now, &rep),
            Message::Rtu(_) => end.cm.accept(now, id.expect("asked"), None).expect("confirmed"),
            Message::Dreq(_) => end.cm.disconnect(now, id.expect("connected")).expect("under way"),
            Message::SidrReq(req) => {
                let (src, dst) = sockets(&req.private_data, req.service_id);
                let id = end.cm.create(PortSpace::Udp, QpKind::Ud).expect("an id");
                end.cm.resolve(id, Route::new(src, dst, end.path, Mtu::B1024)).expect("resolved");
                let mut param = ConnParam::new(0);
                param.private_data = data(&req.private_data[36..]);
                end.cm.connect(now, id, &param).expect("under way");
                listen(&mut ends[1].cm, PortSpace::Udp, QpKind::Ud, dst);
            }
            Message::SidrRep(SidrRep { qpn, qkey, private_data, .. }) => {
                let mut param = ConnParam::new(qpn);
                (param.qkey, param.private_data) = (Some(qkey), data(&private_data));
                end.cm.accept(now, id.expect("asked"), Some(&param)).expect("accepted");
            }
            Message::Rej(_) | Message::Drep(_) => {}
            other => panic!("{name}: {other:?}"),
        }
        ends[from].compare(&name, mad);
        let to = &mut ends[1 - from];
        to.receive(now, path, mad);
        match mad.message {
            Message::Req(_) if refused => {}
            Message::Req(_) | Message::SidrReq(_) => event(to, EventKind::ConnectRequest),
            Message::Rep(_) => event(to, EventKind::ConnectResponse),
            Message::Rtu(_) | Message::SidrRep(_) => event(to, EventKind::Established),
            Message::Rej(_) => event(to, EventKind::Rejected),
            Message::Dreq(_) | Message::Drep(_) => event(to, EventKind::Disconnected),
            _ => {}
        }
        assert!(to.cm.poll_event().is_none(), "{name}: one event");
    }
    mads.len()
}

#[test]
fn both_sides_say_what_the_kernel_says() {
    let files = captures();
    let messages: usize = files.iter().map(|file| play(file)).sum();
    assert_eq!((files.len(), messages), (5, 24), "{files:?}");
}
