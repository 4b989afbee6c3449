//! What is said of policies that are wrong: where, what, and what was expected.

use irnic_openqueue::Policy;

/// Policy and message.
const CASES: &[(&str, &str)] = &[
    ("", "1:1: a policy has a port at least: expected NAME = Port(100%, QUEUE, …)"),
    (
        "q = Queue(10KB)\nq2 = Queue(5parsecs)",
        "2:12: 5parsecs: expected a number such as 12 or 0.95, a share such as 75%, a size such as 240KB or 64K, a time such as 2us, or a rate such as 10Gbps",
    ),
    ("q = Queue(10KB) $", "1:17: '$' means nothing here"),
    ("q = Queue(10KB", "1:15: expected ',', found the end of the policy"),
    ("q = Queue()", "1:1: a Queue has a size: expected Queue(SIZE)"),
    ("q = Queue(0)", "1:11: expected a size in whole bytes, above 0"),
    ("q = Queue(2us)", "1:11: expected a size in whole bytes, above 0"),
    ("q = Queue(1KB, 2)", "1:16: a Queue has a size, and nothing else"),
    ("q = Stack(1KB)", "1:5: expected Queue(…), Buffer(…) or Port(…), found 'Stack'"),
    ("Queue q = Queue(1KB)", "1:1: names have no types: write NAME = Queue(…)"),
    ("import \"routines.h\"", "1:8: '\"' means nothing here"),
    ("import routines", "1:1: import is C's: conditions and comparators are written here as expressions"),
    ("q = Queue(1KB); out = Port(50%, q)", "1:28: a port sends at the rate of its link: expected 100%"),
    ("q = Queue(1KB); out = Port(100%)", "1:17: a Port has one queue at least"),
    ("q = Queue(1KB) -> r", "1:16: only a Port leads to a queue, not a Queue"),
    ("q = Queue(1KB); r = Queue(1KB); p = Port(q) -> ; out = Port(r)", "1:48: expected an expression, found ';'"),
    (
        "q = Queue(1KB); r = Queue(1KB); p = Port(0, q) -> r; out = Port(r); queue = q;",
        "1:42: expected a share of the fastest link, such as 100%, or a rate such as 40Gbps",
    ),
    (
        "q = Queue(1KB); r = Queue(1KB); p = Port(2us, q) -> r; out = Port(r); queue = q;",
        "1:42: expected a share of the fastest link, such as 100%, or a rate such as 40Gbps",
    ),
    ("q = Queue(1KB); r = Queue(1KB); p = Port(q) -> s; out = Port(r); queue = q;", "1:48: there is no queue s"),
    ("q = Queue(1KB); r = Queue(1KB); p = Port(q) -> 3; out = Port(r); queue = q;", "1:48: expected a queue"),
    ("q = Queue(1KB); p = Port(q) -> q;", "1:1: a policy has a port at least: expected NAME = Port(100%, QUEUE, …)"),
    (
        "q = Queue(1KB); r = Queue(1KB); p = Port(q) -> q; out = Port(r); queue = q;",
        "1:33: packets would go in circles: p leads to a queue from which they come back to it",
    ),
    (
        "for i in 0..3 { q[i] = Queue(1KB); } r = Queue(1KB); out = Port(r); queue = q[0];\nfor i in 0..3 { p[i] = Port(q[i]) -> q[i + 1]; }",
        "2:17: packets would go in circles: p[0] leads to a queue from which they come back to it",
    ),
    (
        "for o in outputs { q[o] = Queue(1KB); r[o] = Queue(1KB); } queue = q[output];\nfor o in outputs { p[o] = Port(q[o]) -> r[o]; out[o] = Port(r[o]); }",
        "2:41: packets for one output would come to queues of another: r needs the index output, by which its queues are at their ports",
    ),
    (
        "for o in outputs { q[o] = Queue(1KB); r[o] = Queue(1KB); } queue = q[output];\nfor o in outputs { p[o] = Port(q[o]); out[o] = Port(r[o]); }",
        "2:20: the policy has 6 ports, and the switch 3; with for output in outputs { … } there are as many, and ports between queues say where they lead: Port(…) -> QUEUE",
    ),
    (
        "q = Queue(1KB); r = Queue(1KB); b = Buffer(1KB, r); b.reserve = 1KB; p = Port(q) -> r; out = Port(r); queue = q;",
        "1:85: r is in a buffer with reserve, headroom or ingressLimit: those are for packets that come from neighbours",
    ),
    ("q = Queue(1KB); out = Port(r)", "1:28: r: expected a parameter"),
    ("q = Queue(1KB); out = Port(q); o2 = Port(q)", "1:32: q is at two ports"),
    ("q = Queue(1KB); r = Queue(1KB); out = Port(q)", "1:17: r is at no port"),
    ("q = Queue(1KB); a = Buffer(1KB, q); b = Buffer(1KB, q); out = Port(q)", "1:37: q is in two buffers"),
    (
        "q = Queue(1KB); out = Port(q); out.rate = 5;",
        "1:36: a Port has no attribute rate to set; expected schedPrio or postSchedAct",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.prio = fifo;",
        "1:34: a Queue has no attribute prio to set; expected procPrio, admPrio, congestion, postAdmAct, admState, schedState, weightAdm or weightSched",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.procPrio = fifo;",
        "1:45: procPrio: expected the name of a rule; there is none of this name",
    ),
    ("q = Queue(1KB); out = Port(q); r.procPrio = fifo;", "1:32: there is no r; objects are: out or q"),
    (
        "q = Queue(1KB); out = Port(q); q.procPrio(p) = p.size > 3;",
        "1:34: a comparator compares two packets: expected two names in parentheses",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.procPrio(p, p) = p.size > 3;",
        "1:46: the two names of a comparator are different",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.procPrio(a, b) = a.size <= b.size;",
        "1:51: '<=' is true of equals: a comparator says which of two comes before the other; write '<'",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.procPrio(a, b) = a.sise < b.sise;",
        "1:53: a packet has no field sise; expected arrival, size, value, processing, slack, flow, priority, dscp, input, output, control or red",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.procPrio(a, b) = a < b;",
        "1:51: a: expected a field of a packet: arrival, size, value, processing, slack, flow, priority, dscp, input, output, control or red",
    ),
    (
        "q = Queue(1KB); out = Port(q);\nq.procPrio(a, b) = queue.currSize > a.size",
        "2:20: queue changes while packets wait: a comparator of packets looks at a and b only",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.procPrio(a, b) = max(a.size, 3) < max(b.size, 3)",
        "1:51: max(…): comparators call no functions",
    ),
    ("q = Queue(1KB); out = Port(q); q.procPrio(a, b) = a.size < b.slack", "1:51: bytes is compared with a time"),
    ("q = Queue(1KB); out = Port(q); q.procPrio(a, b) = a.size + b.slack", "1:51: bytes is added to a time"),
    (
        "q = Queue(1KB); out = Port(q); q.procPrio(a, b) = a.size",
        "1:51: expected a condition such as currSize > 10KB, found a number",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.procPrio(a, b) = 1 < 2",
        "1:51: always true: a comparator tells two packets apart",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.procPrio(a, b) = 1 < a.size < 2",
        "1:62: comparisons are not chained: write a < b && b < c",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.congestion() = currSize > size",
        "1:34: expected cases: (CONDITION, ACTION).(CONDITION, ACTION)…",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.congestion() = (currSize > size, panic)",
        "1:67: expected an action: drop, mark, trim, return, notify or modify, found 'panic'",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.congestion() = (currSize > size, trim(tail))",
        "1:72: expected coin or arriving, found 'tail'",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.congestion() = (currSize > size, trim(0.5))",
        "1:72: expected coin or arriving, found a number",
    ),
    (
        "q = Queue(1KB); out = Port(q); b = Buffer(1KB, q); b.congestion() = (currSize > size, trim(coin))",
        "1:92: it is the last packet of a queue that is cut: trim(coin) goes with the congestion of queues",
    ),
    (
        "q = Queue(1KB); o = Queue(1KB); out = Port(o); in = Port(q) -> o; queue = q; q.congestion() = (currSize > size, trim(coin))",
        "1:1: q: trim(coin) goes with policies whose ports all have links",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.congestion(x) = (currSize > x.getHOL().size, trim(coin))",
        "1:1: q: trim(coin) goes with policies that do not look at getHOL()",
    ),
    (
        "q = Queue(1KB); out = Port(q); b = Buffer(9KB, q); b.reserve = 1KB; q.congestion() = (currSize > size, trim(coin))",
        "1:1: q: trim(coin) goes with buffers without reserve, headroom and ingressLimit: those lose nothing",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.postAdmAct() = (currSize > size, return)",
        "1:67: return goes with congestion only",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.congestion() = (currSize > size, mark)",
        "1:67: mark goes with postAdmAct and postSchedAct only",
    ),
    ("q = Queue(1KB); out = Port(q); q.postAdmAct() = (currSize > size, drop)", "1:67: drop goes with congestion only"),
    (
        "q = Queue(1KB); out = Port(q); q.congestion() = (currSize > size, drop(1.5))",
        "1:72: a probability is from 0 to 1",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.congestion() = (currSize > size, drop(2KB))",
        "1:72: a probability is a plain number, not bytes",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.congestion() = (currSize > limit, drop)",
        "1:61: limit: expected a parameter, packet, queue, buffer, port, ingress, or a field: size, currSize, redSize, sending, packets, admState, schedState, weightAdm or weightSched",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.congestion() = (buffer.free < 10, drop)",
        "1:34: the condition looks at the buffer of q, which is in none",
    ),
    ("q = Queue(1KB); out = Port(q); q.congestion() = (currSize > size / 0, drop)", "1:68: a division by zero"),
    (
        "q = Queue(1KB); out = Port(q); q.postAdmAct() = (true, notify(stop))",
        "1:63: expected xoff or xon, found 'stop'",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.postAdmAct() = (true, notify(rate))",
        "1:63: rates are notified of by congestion points (irnic sim --rocc); expected xoff or xon",
    ),
    (
        "q = Queue(1KB); out = Port(q); q.postAdmAct() = (true, modify(size := 5))",
        "1:63: size cannot be modified; expected admState, schedState, weightAdm or weightSched",
    ),
    (
        "q = Queue(1KB); r = Queue(1KB); out = Port(q, r)",
        "1:17: there are several queues: expected a classifier, queue = …",
    ),
    (
        "q = Queue(1KB); r = Queue(1KB); out = Port(q, r); queue = (priority > 3, q).(true, s)",
        "1:84: there is no queue s",
    ),
    (
        "q = Queue(1KB); r = Queue(1KB); out = Port(q, r); queue = (chance(2), q).(true, r)",
        "1:67: a probability is from 0 to 1",
    ),
    ("for p in priorities { q[p] = Queue(1KB); } out = Port(q); queue = q;", "1:67: q has 1 indices, and 0 are given"),
    ("for p in priorities { q[p] = Queue(1KB); } out = Port(q); queue = q[size];", "1:69: an index is a whole number"),
    (
        "for p in priorities { q[p] = Queue(1KB); } for o in outputs { out[o] = Port(q[o]); } queue = q[priority]",
        "1:23: q[3] is at no port",
    ),
    (
        "for o in outputs, p in priorities { q[o][p] = Queue(1KB); } for o in outputs { out[o] = Port(q[o]); } queue = q[input][priority]",
        "1:111: packets for one output would come to queues of another: q needs the index output, by which its queues are at their ports",
    ),
    (
        "for o in 0..3 { q[o] = Queue(1KB); } out = Port(q); out.schedPrio(a, b) = a.turn.p < b.turn.p",
        "1:82: queues have no index p; there is o",
    ),
    (
        "for o in 0..3 { q[o] = Queue(1KB); } out = Port(q); queue = q[priority]; out.schedPrio(a, b) = a.turn > b.turn",
        "1:96: the queue whose turn is soonest comes first: write turn < turn",
    ),
    (
        "for o in 0..3 { q[o] = Queue(1KB); } out = Port(q); queue = q[priority]; out.schedPrio(a, b) = a.currSize * b.currSize > 3",
        "1:96: expected a key of each queue compared, as in a.currSize < b.currSize, and others between equals: KEY(a) < KEY(b) || KEY(a) == KEY(b) && …",
    ),
    ("for o in 0..9000000 { }", "1:13: expected a whole number from 0 to 1048576"),
    ("for o in outputs { o = Queue(1KB); }", "1:20: o has a meaning already"),
    ("if 3 { }", "1:4: expected on or off, found a number"),
    ("if on { param x = 3; }", "1:15: parameters stand outside of loops and conditions"),
    ("param x = 3; param x = 4;", "1:20: x is a parameter already"),
    ("packet = Queue(1KB)", "1:1: packet stands for the packet that a condition is about: choose another name"),
    ("q[0] = Queue(1KB); q[0] = Queue(1KB);", "1:20: q[0] is made twice"),
    ("fifo(a, b) = a.arrival < b.arrival; fifo(a, b) = a.size < b.size;", "1:37: fifo is defined twice"),
    ("for o in outputs q = 3", "1:18: expected '{', found 'q'"),
    ("for o of outputs { }", "1:7: expected 'in', found 'of'"),
    ("q = Queue(1KB); out = Port(q); out.x.y = 3;", "1:36: out has no field x with fields"),
    ("5 = x", "1:1: expected a statement, found a number"),
];

#[test]
fn errors_say_where_what_and_what_was_expected() {
    let mut wrong = Vec::new();
    for (text, expected) in CASES {
        match text.parse::<Policy>() {
            Ok(_) => wrong.push(format!("{text}\n  is accepted; expected {expected}")),
            Err(error) if error.to_string() != *expected => wrong.push(format!("{text}\n  {error}\n  {expected}")),
            Err(error) => assert!(!error.to_string().contains('\n')),
        }
    }
    assert!(CASES.len() >= 30 && wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
}

#[test]
fn deep_nesting_is_refused() {
    let deep = format!("q = Queue({}1{})", "(".repeat(10_000), ")".repeat(10_000));
    let error = deep.parse::<Policy>().unwrap_err();
    assert!(error.to_string().ends_with("nested deeper than 48"), "{error}");
}

#[test]
fn long_chains_of_operators_are_refused() {
    let chain = |operand: &str, operator: &str, operands: usize| vec![operand; operands].join(operator);
    let longest = format!("q = Queue({}); out = Port(q);", chain("1KB", " + ", 256));
    longest.parse::<Policy>().expect("a policy");
    let listed = format!("q[i in 0..300] = Queue(1KB); b = Buffer({});", chain("q[0]", ", ", 300));
    assert!(!listed.parse::<Policy>().is_err_and(|e| e.to_string().contains("operands")));
    for expression in [
        chain("1", " + ", 20_000),
        chain("true", " || ", 20_000),
        chain("(1 + 1)", " - ", 129),
        chain("max(1, 1)", " * ", 20_000),
        format!("1 < {}", chain("2", "/", 20_000)),
    ] {
        for text in
            [format!("q = Queue({expression})"), format!("param p = {expression}"), format!("f(x) = {expression}")]
        {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.ends_with("an expression has at most 256 operands"), "{error}");
        }
    }
}

#[test]
fn parameters_are_checked() {
    let mut policy: Policy = "param size = 64KB; param pfc = off; param alpha = 1/16; q = Queue(size); out = Port(q);"
        .parse()
        .expect("a policy");
    let mut refused = |name, text| policy.set(name, text).unwrap_err().to_string();
    assert_eq!(refused("sise", "1"), "the policy has no parameter sise; expected size, pfc or alpha");
    assert_eq!(refused("pfc", "3"), "pfc=3: expected on or off");
    assert_eq!(refused("alpha", "x"), "alpha=x: expected a number such as 0.5, 1/16 or 75%");
    assert!(refused("size", "2us").starts_with("size=2us: expected a size such as"));
    policy.set("alpha", "1/4").expect("a quotient");
    policy.set("size", "128K").expect("a size");
    let values: Vec<String> = policy.parameters().into_iter().map(|p| p.value).collect();
    assert_eq!(values, ["131072", "off", "1/4"]);
}
