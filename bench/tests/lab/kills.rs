//! Hosts of a lab, and labs, are killed at random points: what is left ends with the errors of a dead link, and nothing
//! stays behind. `IRNIC_KILLS=100` kills as often.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use irnic_testkit::wait::HANG;

use crate::support::{Folder, free_port, irnic, listens, needs, text};

/// So often, unless said otherwise.
const KILLS: u64 = 6;

/// Knuth's linear congruential generator, its upper half.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Processes that have this folder as theirs: numbers and command lines.
fn processes_in(folder: &Folder) -> Vec<(u32, String)> {
    let read = |path: PathBuf| {
        let here = std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == folder.path());
        let zombie = std::fs::read_to_string(path.join("stat")).is_ok_and(|stat| stat.contains(") Z "));
        let number = path.file_name()?.to_str()?.parse().ok()?;
        (here && !zombie).then(|| (number, std::fs::read_to_string(path.join("cmdline")).unwrap_or_default()))
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| read(entry.ok()?.path())).collect()
}

fn kill(process: u32) {
    let _ = Command::new("kill").args(["-9", &process.to_string()]).stderr(Stdio::null()).status();
}

/// Waits until a thousand frames have arrived somewhere.
fn await_data(folder: &Folder) {
    let arrived = |stats: &str| {
        let stats: serde_json::Value = serde_json::from_str(stats).ok()?;
        stats["pairs"].as_array()?.iter().filter_map(|pair| pair["arrived"].as_u64()).max()
    };
    let until = Instant::now() + HANG;
    while {
        let stats = irnic(folder).args(["ctl", "--socket", "control", "stats"]).output().unwrap();
        arrived(&text(&stats.stdout)).is_none_or(|frames| frames < 1_000)
    } {
        let said = std::fs::read_to_string(folder.path().join("said.txt"));
        assert!(Instant::now() < until, "no data flow: {said:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_stays_behind_whoever_is_killed_whenever() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let kills = std::env::var("IRNIC_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let mut random = Random(17);
    // Of a server, of its client, and of the lab, while data flow.
    let mut deaths = [0; 3];
    for round in 0..kills {
        let folder = Folder::new();
        let port = free_port();
        let program = format!("ib_write_bw -d irnic0 -p {port} --run_infinitely -D 1");
        let connect = format!("{}; exec {program} 127.77.0.1 > client.txt", listens(&port));
        folder.write(
            "lab.toml",
            &format!(
                "topology = 'star:hosts=2,rate=1G,delay=2us'\n[[host]]\nhost = 0\ncommand = '{program}'\n\
                 [[host]]\nhost = 1\ncommand = '''{connect}'''\n"
            ),
        );
        let mut lab = irnic(&folder)
            .args(["lab", "lab.toml", "--control", "control"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.path().join("said.txt")).unwrap())
            .spawn()
            .unwrap();
        // One in four dies while connections are made.
        let transfer = round % 4 > 0;
        if transfer {
            await_data(&folder);
        }
        std::thread::sleep(Duration::from_millis(random.below(if transfer { 1_000 } else { 2_500 })));
        let hosts: Vec<(u32, String)> =
            processes_in(&folder).into_iter().filter(|(_, command)| command.starts_with("ib_write_bw")).collect();
        let victim = hosts.get(random.below(3) as usize);
        let of_server = victim.is_some_and(|(_, command)| !command.contains("127.77.0.1"));
        let victim = victim.map(|(process, _)| *process);
        if transfer {
            deaths[if victim.is_none() { 2 } else { usize::from(!of_server) }] += 1;
        }
        kill(victim.unwrap_or(lab.id()));
        // A server that has no client yet waits for one for ever, as it would anywhere.
        let patience = if transfer { HANG } else { Duration::from_secs(1) };
        let until = Instant::now() + patience;
        while lab.try_wait().unwrap().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let point = format!("round {round}, {hosts:?}, killed {victim:?}, transfer {transfer}");
        assert!(!transfer || lab.try_wait().unwrap().is_some(), "{point}: {:?}", processes_in(&folder));
        let _ = Command::new("kill").arg(lab.id().to_string()).stderr(Stdio::null()).status();
        let status = lab.wait().unwrap();
        let until = Instant::now() + HANG;
        let said = || std::fs::read_to_string(folder.path().join("said.txt")).unwrap();
        while !processes_in(&folder).is_empty() {
            let left = processes_in(&folder);
            assert!(Instant::now() < until, "{point}: {left:?}\n{}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!status.success(), "{point}: {}", said());
        assert!(!said().contains("panicked"), "{point}: {}", said());
        if transfer && of_server {
            let client = std::fs::read_to_string(folder.path().join("client.txt")).unwrap() + &said();
            // Transport retry counter exceeded.
            assert!(
                client.contains("Completion with error") && client.contains("Failed status 12"),
                "{point}: {client}"
            );
        }
        // 128 and a signal's number; the victim's is 9.
        let statuses: Vec<u32> =
            said().lines().filter_map(|line| line.split_once(": exit status ")?.1.parse().ok()).collect();
        let signals = statuses.iter().filter(|status| **status >= 128).count();
        assert!(signals <= usize::from(transfer && victim.is_some()) || !transfer, "{point}: {}", said());
        let names = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!names.contains(&format!("irnic-lab-{}-", lab.id())), "{point}: {names}");
    }
    assert!(kills < 100 || deaths.iter().all(|times| *times > 0), "server, client, lab: {deaths:?}");
}
