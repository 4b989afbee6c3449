//! Scripts and job descriptions that start all shards of a sweep on other machines.

use std::path::Path;

use irnic_report::CommandError;

use crate::args::Engine;
use crate::command_line::{self, Split, quoted};
use crate::runs::{How, Sweep};

/// Prints the script.
pub fn job<S: Sweep>(sweep: &S, how: &How<'_>, engine: Engine, out: &Path) -> Result<(), CommandError> {
    if command_line::path(out).contains(char::is_control) {
        return Err(CommandError::Usage("--out: expected a name without line breaks, for a script".to_owned()));
    }
    (0..sweep.cases()).try_for_each(|case| sweep.check(case))?;
    let split = Split::of(&command_line::given()?);
    let runs = sweep.cases() * sweep.seeds().len();
    let shards = how.args.shards.map_or(1, |n| n as usize).min(runs);
    let mut what = split.what.clone();
    what.extend(split.keep(&["out", "threads", "run-timeout", "run-memory"]));
    what.extend(["--resume", "--retry-failed"].map(str::to_owned));
    // The number of cores of this host says nothing about others.
    let jobs = if split.keep(&["jobs"]).is_empty() { 1 } else { how.jobs };
    what.extend(["--jobs".to_owned(), jobs.to_string()]);
    let job = Job {
        about: format!("{} in {shards} shards", if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") }),
        what: quoted(&what),
        merge: quoted(&["irnic".to_owned(), "merge".to_owned(), command_line::path(out)]),
        shards,
        cores: jobs * how.threads,
    };
    irnic_report::output::print(&match engine {
        Engine::Slurm => job.slurm(&command_line::program()),
        Engine::Parallel => job.parallel(&command_line::program()),
        Engine::K8s => job.k8s(),
    });
    Ok(())
}

struct Job {
    about: String,
    /// The command line, without program and shard.
    what: String,
    merge: String,
    shards: usize,
    /// Cores of a shard.
    cores: usize,
}

impl Job {
    fn slurm(&self, program: &str) -> String {
        let Job { about, what, merge, shards, cores } = self;
        format!(
            "#!/bin/sh\n\
             # {about}: sbatch FILE; then: {merge}\n\
             # Submitted again it makes what is missing, and once more what failed.\n\
             #SBATCH --job-name=irnic\n\
             #SBATCH --array=1-{shards}\n\
             #SBATCH --ntasks=1\n\
             #SBATCH --cpus-per-task={cores}\n\
             #SBATCH --requeue\n\
             #SBATCH --open-mode=append\n\
             #SBATCH --output=irnic-%A_%a.log\n\
             exec {program} {what} --shard \"$SLURM_ARRAY_TASK_ID/{shards}\"\n"
        )
    }

    fn parallel(&self, program: &str) -> String {
        let Job { about, what, merge, shards, cores } = self;
        // Parallel passes its command to another shell, and knows the cores of other hosts.
        let share = (100 / cores).max(1);
        let command = format!("{program} {what} --shard {{}}/{shards}");
        format!(
            "#!/bin/sh\n\
             # {about}: sh FILE [OPTION OF PARALLEL...]; then: {merge}\n\
             # Run again it makes what is missing, and once more what failed. Other hosts, with the folder on a shared\n\
             # file system: sh FILE --sshlogin host1,host2 --workdir \"$PWD\"\n\
             seq {shards} | parallel --jobs {share}% --line-buffer \"$@\" {}\n",
            quoted(&[command])
        )
    }

    fn k8s(&self) -> String {
        let Job { about, what, merge, shards, cores } = self;
        let script = format!("exec irnic {what} --shard \"$((JOB_COMPLETION_INDEX + 1))/{shards}\"");
        // A JSON string is valid YAML.
        let script = serde_json::Value::from(script);
        format!(
            "# {about}: kubectl apply -f FILE; then, where the volume is: {merge}\n\
             # Needs: your image with irnic in it, and a volume that all pods can write, with the files that are named.\n\
             apiVersion: batch/v1\n\
             kind: Job\n\
             metadata:\n\
             \x20 name: irnic-sweep\n\
             spec:\n\
             \x20 completionMode: Indexed\n\
             \x20 completions: {shards}\n\
             \x20 parallelism: {shards}\n\
             \x20 backoffLimitPerIndex: 2\n\
             \x20 template:\n\
             \x20   spec:\n\
             \x20     restartPolicy: Never\n\
             \x20     containers:\n\
             \x20       - name: irnic\n\
             \x20         image: irnic\n\
             \x20         workingDir: /sweep\n\
             \x20         command: [\"/bin/sh\", \"-c\", {script}]\n\
             \x20         resources:\n\
             \x20           requests:\n\
             \x20             cpu: {cores}\n\
             \x20         volumeMounts:\n\
             \x20           - name: sweep\n\
             \x20             mountPath: /sweep\n\
             \x20     volumes:\n\
             \x20       - name: sweep\n\
             \x20         persistentVolumeClaim:\n\
             \x20           claimName: irnic-sweep\n"
        )
    }
}
