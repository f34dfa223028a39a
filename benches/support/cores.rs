//! The cores that a bench uses. Waking a thread on another core costs more than a decision and varies with
//! the state of the machine, so a client and its server share one core.

use std::process::{Command, Stdio};

/// Pins this process, and every thread and server that it starts from now on, to one core: the one in
/// `BENCH_CORE`, otherwise the first. `BENCH_CORE=all` pins nothing.
pub fn pin_to_one() -> String {
    let core = std::env::var("BENCH_CORE").unwrap_or_else(|_| "0".into());
    if core == "all" {
        return "on every core".into();
    }
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "--pid", &core, &std::process::id().to_string()]);
    let pinned = command.stdout(Stdio::null()).status();
    assert!(pinned.is_ok_and(|status| status.success()), "taskset could not pin to core {core}");
    format!("pinned to core {core}")
}
