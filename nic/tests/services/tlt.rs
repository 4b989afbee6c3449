//! TLT between NICs (EuroSys 2021, §5): one important packet of each stream, its echo, clocks, colours; the paper's
//! figures packet by packet.

use std::cell::RefCell;
use std::rc::Rc;

use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{Wc, WcStatus};
use irnic_transports::wire::opcode::Operation;
use irnic_transports::wire::{Importance, IrnEth, NakCode, Syndrome, parse};
use irnic_transports::{Colour, Psn};

use crate::common::{Connection, End, Network, pair};
use crate::transfer::{check, post};

/// Describes a frame in flight in a word.
///
/// From the stream's sender, `d5` is red, `g5` green, `D5` important data, `C5` a clock with payload, `P5` one without.
/// From its receiver, `a5` acknowledges everything before 5, `n5s7` also 7; with `E` in front it is an echo of
/// important data, with `K` one of a clock. `~` follows lost frames.
fn word(frame: &[u8], red: bool) -> String {
    let (headers, _) = parse(frame).unwrap();
    let (psn, importance) = (headers.bth.psn.get(), headers.bth.importance);
    match headers.bth.opcode.operation() {
        Operation::Acknowledge | Operation::ReadAcknowledge => {
            assert!(!red);
            let echo = match importance {
                Importance::None => "",
                Importance::Important => "E",
                Importance::Clock => "K",
            };
            match (Syndrome::from_u8(headers.aeth.unwrap().syndrome), headers.irn) {
                (Some(Syndrome::Nak(NakCode::PsnSequenceError)), Some(IrnEth::Ack { selective, .. })) => {
                    format!("{echo}n{psn}s{selective}")
                }
                (Some(Syndrome::Nak(NakCode::PsnSequenceError)), _) => format!("n{psn}"),
                _ => format!("{echo}a{}", headers.bth.psn.plus(1)),
            }
        }
        Operation::Clock | Operation::ReadClock => {
            assert!(!red && importance == Importance::Clock);
            format!("P{psn}")
        }
        _ => {
            let letter = match importance {
                Importance::None if red => "d",
                Importance::None => "g",
                Importance::Important => "D",
                Importance::Clock => "C",
            };
            assert!(!red || importance == Importance::None);
            format!("{letter}{psn}")
        }
    }
}

/// A connection that records every frame, and loses some.
struct Trace {
    net: Network,
    ends: [End; 2],
    words: Rc<RefCell<Vec<String>>>,
}

impl Trace {
    /// `lost` lists the frames to lose: words of [`word`], each as many times as it is in the list.
    fn new(transport: &str, lost: &[&str]) -> Trace {
        let c = Connection {
            transport: [transport.parse::<TransportConfig>().unwrap(); 2],
            psn: [Psn::new(0), Psn::new(0)],
            ..Connection::default()
        };
        let (mut net, ends) = pair("delay 10us", 1, &c);
        let words = Rc::new(RefCell::new(Vec::new()));
        let lost = RefCell::new(lost.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        let (all, red) = (Rc::clone(&words), Rc::new(RefCell::new(false)));
        let is_red = Rc::clone(&red);
        net.watch = Some(Box::new(move |_, path, _| *is_red.borrow_mut() = path.colour() == Colour::Red));
        net.tamper = Some(Box::new(move |_, frame| {
            let mut word = word(frame, *red.borrow());
            let mut lost = lost.borrow_mut();
            let at = lost.iter().position(|w| *w == word);
            if let Some(at) = at {
                lost.remove(at);
                word.push('~');
            }
            all.borrow_mut().push(word);
            at.is_none()
        }));
        Trace { net, ends, words }
    }

    /// Writes, or reads, `packets` packets; returns all words, and the number of timeouts.
    fn run(mut self, packets: usize, read: bool) -> (String, u64) {
        let regions = post(&mut self.net, self.ends, packets, read);
        while self.net.step() {}
        check(&mut self.net, self.ends, &regions);
        let sender = usize::from(read);
        let stats = self.net.nics[sender].qp(self.ends[sender].qpn).unwrap().counts();
        (self.words.borrow().join(" "), stats.timeouts)
    }
}

/// Asserts the frames on the wire, and that there are no timeouts.
fn sequence(transport: &str, lost: &[&str], packets: usize, words: &str) {
    for read in [false, true] {
        let (sent, timeouts) = Trace::new(transport, lost).run(packets, read);
        // A READ's request is a stream of its own, of one packet.
        let sent = if read { sent.strip_prefix("D0 Ea1 ").unwrap_or(&sent) } else { &sent };
        assert_eq!((sent, timeouts), (words, 0), "{transport}, {lost:?} lost, read {read}");
    }
}

/// The last packet of the first window is important. Its echo enables another one: the first sent then, or a clock that
/// requests the first unacknowledged packet.
#[test]
fn one_packet_of_a_stream_is_important() {
    sequence("irn,cap=4,tlt=on", &[], 4, "d0 d1 d2 D3 a1 a2 a3 Ea4");
    // The window is never full.
    sequence("irn,cap=9,tlt=on", &[], 3, "d0 d1 D2 a1 a2 Ea3");
    sequence("irn,cap=4,tlt=on", &[], 9, "d0 d1 d2 D3 a1 a2 a3 Ea4 d4 d5 d6 D7 a5 a6 a7 Ea8 d8 P8 a9 Ka9");
    // The authors' RDMA simulator begins with the first.
    sequence("irn,cap=4,tlt=on,tlt-first=packet", &[], 3, "D0 d1 d2 Ea1 a2 a3 P1 Ka3");
    // Without TLT nothing is marked.
    let (sent, _) = Trace::new("irn,cap=4", &[]).run(4, false);
    assert_eq!(sent, "g0 g1 g2 g3 a1 a2 a3 a4");
}

/// Figure 3a: one packet between two important ones is lost. A NACK reports it first, here as in the paper.
#[test]
fn a_loss_between_important_packets_is_found() {
    let words = "d0 d1 d2 D3 a1 a2 a3 Ea4 d4 d5~ d6 D7 a5 n5s6 En5s7 d8 d5 P5 n5s8 a9 Ka9";
    sequence("irn,cap=4,tlt=on", &["d5"], 9, words);
}

/// A lost packet at the end of a window causes no NACK. The clock's echo shows the loss, which without TLT takes a
/// timeout.
#[test]
fn a_lost_tail_is_found_by_a_clock() {
    let lost = ["d4", "d5", "d6"];
    let start = "d0 d1 d2 D3 a1 a2 a3 Ea4 d4~ d5~ d6~ ";
    sequence("irn,cap=4,tlt=on", &lost, 7, &format!("{start}P4 Ka4 D4 d5 d6 Ea5 a6 a7 P5 Ka7"));
    // A whole packet repairs the loss that it is to detect (§5.3), but only that.
    sequence("irn,cap=4,tlt=on,tlt-clock=mtu", &lost, 7, &format!("{start}C4 Ka5 D5 d6 Ea6 a7 C6 Ka7"));
    for (transport, lost) in
        [("irn,cap=4,tlt=on,tlt-clock=probe", ["d4", "d5", "d6"]), ("irn,cap=4", ["g4", "g5", "g6"])]
    {
        for read in [false, true] {
            let (sent, timeouts) = Trace::new(transport, &lost).run(7, read);
            assert!(timeouts > 0, "{sent}");
        }
    }
}

/// Figure 3b: a retransmission is lost. The next echo shows it, and the packet is resent as important data.
#[test]
fn a_lost_retransmission_is_found() {
    let words = "d0 d1~ d2 D3 a1 n1s2 En1s3 d4 d1~ P1 n1s4 Ka1 D1 Ea5";
    sequence("irn,cap=4,tlt=on", &["d1", "d1"], 5, words);
    let (sent, timeouts) = Trace::new("irn,cap=4", &["g1", "g1"]).run(5, false);
    assert!(timeouts == 1, "{sent}");
}

/// All unimportant packets are lost at once; with TCP's window, which shrinks on loss, too.
#[test]
fn the_important_packet_alone_is_enough() {
    sequence("irn,cap=4,tlt=on", &["d0", "d1", "d2"], 4, "d0~ d1~ d2~ D3 En0s3 D0 d1 d2 Ea1 a2 a4 P1 Ka4");
    let (sent, timeouts) = Trace::new("iwarp,nack-threshold=1,tlt=on", &["d0", "d1", "d2"]).run(4, false);
    assert_eq!(timeouts, 0, "{sent}");
}

/// Figure 4: with go-back-N the last packet is important, and the first and the last of each retransmission. Without
/// that the second loss of a packet looks like the first, and waits for the timer.
#[test]
fn the_first_and_the_last_of_a_round_of_retransmissions_are_important() {
    let run = |transport, lost: &[&str]| Trace::new(transport, lost).run(5, false);
    let (sent, timeouts) = run("roce,tlt=on,rto=1ms", &["d2", "d3", "d2"]);
    assert_eq!((&sent[..], timeouts), ("d0 d1 d2~ d3~ g4 n2 g2 d3 g4 a3 a4 a5", 0));
    let (sent, timeouts) = run("roce,rto=1ms", &["g2", "g3", "g2"]);
    assert!(timeouts == 1, "{sent}");
    // Every Nth, too.
    let (sent, _) = run("roce,tlt=on,tlt-every=2,rto=1ms", &[]);
    assert!(sent.starts_with("d0 g1 d2 g3 g4"), "{sent}");
}

/// A network that temporarily drops all red packets, and no others: no timer may expire, whatever the stream carries
/// and however its window is controlled.
#[test]
fn while_all_that_is_red_is_dropped_no_timer_runs_out() {
    for transport in [
        "irn,tlt=on",
        "irn,cap=8,tlt=on",
        "irn-no-bdp,tlt=on,tlt-clock=mtu",
        "irn,tlt=on,tlt-first=packet",
        "irn,tlt=on,evidence=on",
        "iwarp,nack-threshold=1,tlt=on",
        "iwarp,tlt=on,evidence=on",
        "irn-no-bdp,cc=dctcp,tlt=on",
        "irn,cc=aimd,tlt=on",
        "irn-no-bdp,cc=dcqcn,tlt=on",
        "irn,cc=timely,tlt=on",
    ] {
        for (seed, read) in [(1, false), (2, true), (3, false), (4, true)] {
            // Timers expire only if a round trip takes a thousand times its normal time.
            let c = Connection {
                transport: [format!("{transport},rto=20ms").parse::<TransportConfig>().unwrap(); 2],
                ..Connection::default()
            };
            let (mut net, ends) = pair("delay 10us", seed, &c);
            let red = Rc::new(RefCell::new((false, 0u32)));
            let seen = Rc::clone(&red);
            net.watch = Some(Box::new(move |_, path, _| seen.borrow_mut().0 = path.colour() == Colour::Red));
            let seen = Rc::clone(&red);
            net.tamper = Some(Box::new(move |_, _| {
                let (red, dropped) = &mut *seen.borrow_mut();
                *dropped += u32::from(*red);
                // The first thousand, then two of three for a time.
                !*red || *dropped > 2_000 || *dropped > 1_000 && dropped.is_multiple_of(3)
            }));
            for _ in 0..3 {
                let regions = post(&mut net, ends, 400, read);
                while net.step() {}
                check(&mut net, ends, &regions);
            }
            let dropped = red.borrow().1;
            let stats = [0, 1].map(|i| net.nics[i].qp(ends[i].qpn).unwrap().counts());
            assert_eq!(stats[0].timeouts + stats[1].timeouts, 0, "{transport}, read {read}");
            assert!(dropped > 100, "{transport}, read {read}: {dropped}");
            let counters = net.nics[usize::from(read)].counters();
            assert!(counters.tlt_losses_found > 0, "{counters:?}");
            assert!(net.nics[usize::from(!read)].counters().tlt_echoes <= counters.tlt_important_pkts);
        }
    }
}

/// Messages follow each other while clocks of the previous one are in flight, and several important packets arrive
/// before anything is answered: an echo identifies its packet, and no stream waits for one that was not sent.
#[test]
fn messages_in_a_row_wait_for_no_echo_of_the_one_before() {
    for (transport, batch) in [("irn,tlt=on", 1), ("irn,tlt=on,evidence=on", 8), ("irn,tlt=on,tlt-clock=mtu", 64)] {
        let c = Connection {
            transport: [format!("{transport},rto=50ms").parse::<TransportConfig>().unwrap(); 2],
            ..Connection::default()
        };
        let (mut net, ends) = pair("delay 10us", 5, &c);
        (net.batch, net.red_loss) = (batch, 40);
        let mut posted = 0;
        let mut wcs = [Wc::EMPTY; 4];
        post(&mut net, ends, 8, false);
        while net.step() {
            let done = net.nics[0].poll_cq(ends[0].cq, &mut wcs).unwrap();
            assert!(wcs[..done].iter().all(|wc| wc.status == WcStatus::Success));
            posted += done;
            if done > 0 && posted < 400 {
                post(&mut net, ends, 1 + posted % 9, false);
            }
        }
        let stats = net.nics[0].qp(ends[0].qpn).unwrap().counts();
        assert_eq!((posted, stats.timeouts), (400, 0), "{transport}");
        assert!(net.nics[0].counters().tlt_losses_found > 0, "{:?}", net.nics[0].counters());
    }
}
