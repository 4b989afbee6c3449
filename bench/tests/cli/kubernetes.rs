//! `packaging/kubernetes`: its manifests fit together, and what their containers run does so here, in network
//! namespaces in place of pods. Podman plays them with the images that `packages.rs` makes, where it can run
//! containers.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Folder, NAMESPACES, needs, skipped, text};
use yaml_rust2::{Yaml, YamlEmitter, YamlLoader};

const MANIFESTS: [&str; 3] = ["pod.yaml", "pair.yaml", "job.yaml"];
/// Where the Debian package puts shared objects, and the program.
const INSTALLED: [&str; 2] = ["/usr/lib/irnic", "/usr/bin/irnic"];

fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/kubernetes")
}

fn documents(name: &str) -> Vec<Yaml> {
    let text = std::fs::read_to_string(place().join(name)).expect("a manifest");
    YamlLoader::load_from_str(&text).expect("YAML")
}

/// A pod as something in a manifest describes it.
struct Pod {
    name: String,
    labels: Yaml,
    spec: Yaml,
}

/// The pods of a manifest, Jobs' among them.
fn pods(name: &str) -> Vec<Pod> {
    let of = |document: Yaml| {
        let template = match document["kind"].as_str().expect("a kind") {
            "Pod" => document.clone(),
            "Job" => document["spec"]["template"].clone(),
            _ => return None,
        };
        let name = document["metadata"]["name"].as_str().expect("a name").to_owned();
        Some(Pod { name, labels: template["metadata"]["labels"].clone(), spec: template["spec"].clone() })
    };
    documents(name).into_iter().filter_map(of).collect()
}

impl Pod {
    fn container(&self, kind: &str) -> Container<'_> {
        let all = self.spec[kind].as_vec().expect(kind);
        assert_eq!(all.len(), 1, "{}: {kind}", self.name);
        Container(&all[0])
    }

    fn init(&self) -> Container<'_> {
        self.container("initContainers")
    }

    fn main(&self) -> Container<'_> {
        self.container("containers")
    }
}

struct Container<'a>(&'a Yaml);

impl Container<'_> {
    fn words(&self, key: &str) -> Vec<String> {
        self.0[key].as_vec().into_iter().flatten().map(|word| word.as_str().expect("text").to_owned()).collect()
    }

    fn image(&self) -> &str {
        self.0["image"].as_str().expect("an image")
    }

    fn environment(&self) -> Vec<(String, String)> {
        let word = |entry: &Yaml, key: &str| entry[key].as_str().unwrap_or_else(|| panic!("{entry:?}")).to_owned();
        let entries = self.0["env"].as_vec().into_iter().flatten();
        entries.map(|entry| (word(entry, "name"), word(entry, "value"))).collect()
    }

    /// Volumes, and where they are.
    fn mounts(&self) -> Vec<(&str, &str)> {
        let mounts = self.0["volumeMounts"].as_vec().into_iter().flatten();
        mounts
            .map(|mount| (mount["name"].as_str().expect("a name"), mount["mountPath"].as_str().expect("a path")))
            .collect()
    }

    /// The command as a line of a shell, for a system whose paths of irnic are in `folder`.
    fn line(&self, folder: &Path) -> String {
        let quoted = |text: &str| format!("'{}'", rooted(text, folder).replace('\'', r"'\''"));
        let settings = self.environment().into_iter().map(|(name, value)| quoted(&format!("{name}={value}")));
        let words: Vec<String> = settings.chain(self.words("command").iter().map(|word| quoted(word))).collect();
        format!("env {}", words.join(" "))
    }
}

/// A text in which the paths of irnic, of the image and of the volume, are those in a folder.
fn rooted(text: &str, folder: &Path) -> String {
    let mut rest = text;
    let mut all = String::new();
    while let Some(at) = rest.find('/') {
        let (before, path) = rest.split_at(at);
        all += before;
        let begins = !all.ends_with(|c: char| c.is_ascii_alphanumeric());
        if begins && (path.starts_with("/irnic") || INSTALLED.iter().any(|place| path.starts_with(place))) {
            all += folder.to_str().expect("text");
        }
        // To the end of the path: parts of it are no paths of their own.
        let end = path.find(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c))).unwrap_or(path.len());
        all += &path[..end];
        rest = &path[end..];
    }
    all + rest
}

/// Puts what the image has of irnic into a folder.
fn install(folder: &Folder) {
    let program = Path::new(env!("CARGO_BIN_EXE_irnic"));
    let [libraries, to] = INSTALLED.map(|place| folder.path().join(place.trim_start_matches('/')));
    std::fs::create_dir_all(&libraries).expect("folders");
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("folders");
    std::fs::copy(program, to).expect("a copy");
    for name in ["verbs", "sysfs", "clock"].map(|name| format!("libirnic_{name}.so")) {
        let from = program.with_file_name("deps").join(&name);
        std::fs::copy(from, libraries.join(name)).expect("a copy");
    }
    std::os::unix::fs::symlink("libirnic_verbs.so", libraries.join("libibverbs.so.1")).expect("a link");
}

/// Runs a script, in network namespaces of its own. `None` if there are none.
fn run(folder: &Folder, script: &str) -> Option<String> {
    needs(&["unshare", "nsenter", "ip"])?;
    let may = Command::new("unshare").args(["--map-root-user", "--net", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        skipped("pods' network namespaces: this user may make none");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-ec", script]).current_dir(folder.path());
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("HOME", folder.path());
    let output = command.output().expect("unshare starts");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(said)
}

#[test]
fn images_volumes_and_settings_fit_together() {
    let build = std::fs::read_to_string(place().join("../build.sh")).expect("the script");
    assert!(build.contains("--tag irnic "), "packaging/build.sh names the image");
    let application = std::fs::read_to_string(place().join("Containerfile")).expect("the application's");
    assert!(application.contains("podman build --tag rdma-app packaging/kubernetes\n"), "{application}");
    for pod in MANIFESTS.iter().flat_map(|name| pods(name)) {
        let (init, main) = (pod.init(), pod.main());
        assert_eq!((init.image(), main.image()), ("localhost/irnic", "localhost/rdma-app"), "{}", pod.name);
        let volumes: Vec<&str> = pod.spec["volumes"]
            .as_vec()
            .expect("volumes")
            .iter()
            .filter_map(|volume| volume["name"].as_str())
            .collect();
        assert_eq!(volumes, ["irnic"], "{}", pod.name);
        assert_eq!(init.mounts(), main.mounts(), "{}", pod.name);
        assert_eq!(init.mounts(), [("irnic", "/irnic")], "{}", pod.name);
        // What the environment sets are settings of irnic's.
        let folder = Folder::new();
        let mut config = crate::support::irnic(&folder);
        config.arg("config").envs(main.environment().into_iter().filter(|(name, _)| name.starts_with("IRNIC_")));
        let output = config.output().expect("irnic runs");
        assert!(output.status.success(), "{}: {}", pod.name, text(&output.stderr));
    }
    // The client asks for the service by its name, and that has the server.
    let service = documents("pair.yaml").into_iter().find(|document| document["kind"].as_str() == Some("Service"));
    let service = service.expect("a service");
    let [server, client] = <[Pod; 2]>::try_from(pods("pair.yaml")).map_err(drop).expect("two pods");
    assert_eq!(service["spec"]["selector"], server.labels);
    let named = client.main().environment().into_iter().find(|(name, _)| name == "SERVER").map(|(_, value)| value);
    assert_eq!(named.as_deref(), service["metadata"]["name"].as_str());
}

#[test]
fn the_environment_names_what_the_init_container_copies() {
    let Some(()) = needs(&["ibv_devinfo"]) else { return };
    let folder = Folder::new();
    install(&folder);
    for pod in MANIFESTS.iter().flat_map(|name| pods(name)) {
        let _ = std::fs::remove_dir_all(folder.path().join("irnic"));
        let copied = Command::new("sh").args(["-ec", &pod.init().line(folder.path())]).output().expect("sh runs");
        assert!(copied.status.success(), "{}: {}", pod.name, text(&copied.stderr));
        for (name, value) in pod.main().environment() {
            let there = |path: &str| Path::new(&rooted(path, folder.path())).exists();
            let is_path = ["LD_PRELOAD", "LD_LIBRARY_PATH", "PATH"].contains(&name.as_str());
            assert!(!is_path || value.split(':').all(there), "{}: {name}={value}", pod.name);
        }
    }
    let [pod] = <[Pod; 1]>::try_from(pods("pod.yaml")).map_err(drop).expect("a pod");
    let script = format!("ip link set lo up\n{}", pod.main().line(folder.path()));
    let Some(said) = run(&folder, &script) else { return };
    assert!(said.contains("hca_id:\tirnic0"), "{said}");
}

#[test]
fn two_pods_talk_rdma_over_udp() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    install(&folder);
    let [server, client] = <[Pod; 2]>::try_from(pods("pair.yaml")).map_err(drop).expect("two pods");
    let script = format!(
        r#"{NAMESPACES}
        {copy}
        there {server} >server.txt 2>&1 & server=$!
        {client}
        wait $server"#,
        copy = server.init().line(folder.path()),
        server = server.main().line(folder.path()),
        // Nobody resolves names here.
        client = client.main().line(folder.path()).replace("SERVER=rdma-server", "SERVER=10.0.0.2"),
    );
    let Some(said) = run(&folder, &script) else { return };
    let row = |line: &str| line.trim_start().starts_with("65536 ") && line.contains(" 1000 ");
    assert!(said.lines().any(row) && said.contains("GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:02"), "{said}");
}

#[test]
fn the_job_runs_its_tests_with_and_without_losses() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    install(&folder);
    let [job] = <[Pod; 1]>::try_from(pods("job.yaml")).map_err(drop).expect("a job");
    let (init, main) = (job.init().line(folder.path()), job.main().line(folder.path()));
    let Some(said) = run(&folder, &format!("ip link set lo up\n{init}\n{main}")) else { return };
    let rows = said.lines().filter(|line| line.trim_start().starts_with("65536 ") && line.contains(" 1000 ")).count();
    assert_eq!(rows, 2, "{said}");
}

/// What podman says, or why it does not do it.
fn podman(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("podman").args(arguments).output().map_err(|e| e.to_string())?;
    let said = text(&output.stderr);
    match output.status.success() {
        true => Ok(text(&output.stdout).trim().to_owned()),
        false => Err(said.lines().last().unwrap_or_default().to_owned()),
    }
}

/// The pod as podman 4 plays it, which knows no Job, and removed at the end.
fn play(folder: &Folder, pod: &Pod, change: impl Fn(String) -> String) -> Result<(), String> {
    let mut spec = String::new();
    YamlEmitter::new(&mut spec).dump(&pod.spec).map_err(|e| e.to_string())?;
    let spec: String = spec.lines().skip(1).map(|line| format!("  {line}\n")).collect();
    let head = format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {}\nspec:\n", pod.name);
    let file = folder.write(&format!("{}.yaml", pod.name), &change(head + &spec));
    podman(&["kube", "play", file.to_str().expect("text")]).map(drop)
}

/// Has podman play the manifests with the images that they name, which it has, if it can run containers.
pub fn podman_plays_the_manifests() {
    if let Err(why) = podman(&["run", "--rm", "--entrypoint", "true", "localhost/irnic"]) {
        return skipped(&format!("packaging/kubernetes: podman runs no containers here: {why}"));
    }
    let folder = Folder::new();
    let [app] = <[Pod; 1]>::try_from(pods("pod.yaml")).map_err(drop).expect("a pod");
    let [server, client] = <[Pod; 2]>::try_from(pods("pair.yaml")).map_err(drop).expect("two pods");
    let [job] = <[Pod; 1]>::try_from(pods("job.yaml")).map_err(drop).expect("a job");
    let played = (|| {
        for pod in [&app, &job, &server] {
            play(&folder, pod, |text| text)?;
        }
        let infra = podman(&["pod", "inspect", "--format", "{{.InfraContainerID}}", &server.name])?;
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        let address = podman(&["inspect", "--format", format, &infra])?;
        // There are no services.
        play(&folder, &client, |text| text.replace("value: rdma-server", &format!("value: {address}")))?;
        [(&app, "app"), (&job, "tests"), (&client, "client")].into_iter().try_for_each(|(pod, container)| {
            let name = format!("{}-{container}", pod.name);
            match podman(&["wait", &name])?.as_str() {
                "0" => Ok(()),
                status => Err(format!("{name}: {status}: {:?}", podman(&["logs", &name]))),
            }
        })
    })();
    for pod in [&app, &job, &server, &client] {
        let _ = podman(&["pod", "rm", "--force", &pod.name]);
    }
    assert_eq!(played, Ok(()));
}
