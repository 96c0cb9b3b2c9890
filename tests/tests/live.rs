//! The live table of `polity run`, as a person sees it on a terminal.

use std::fs::File;
use std::io::Read as _;
use std::num::NonZero;
use std::process::{Command, ExitStatus, Stdio};

use polity_tests::examples;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// What a run left on its terminal.
struct Seen {
    /// The lines that stand on the screen in the end.
    last: Vec<String>,
    /// Every different screen.
    screens: Vec<Vec<String>>,
    status: ExitStatus,
}

fn nonzero(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a terminal has room")
}

/// Runs the example in a terminal of this size, with these options.
fn run(example: &tempfile::TempDir, (columns, rows): (u16, u16), options: &[&str]) -> Seen {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("it is ours");
    unlockpt(&master).expect("it opens");
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).expect("it has a size");
    let name = ptsname(&master, Vec::new())
        .expect("it has a name")
        .into_string()
        .expect("a path");
    let slave = File::options()
        .read(true)
        .write(true)
        .open(name)
        .expect("it opens");
    let recording = tempfile::tempdir().expect("a folder");
    let mut polity = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["run", "--until-settled", "--record"])
        .arg(recording.path())
        .args(options)
        .arg(example.path())
        .env("TERM", "xterm-256color")
        .stdin(Stdio::null())
        .stdout(slave.try_clone().expect("a copy"))
        .stderr(slave)
        .spawn()
        .expect("it starts");
    let (mut master, mut bytes) = (File::from(master), [0; 65_536]);
    let mut terminal = vt100::Parser::new(nonzero(rows), nonzero(columns), 0);
    let mut screens = Vec::<Vec<String>>::new();
    // The read fails once nobody has the terminal open any more.
    while let Ok(count @ 1..) = master.read(&mut bytes) {
        terminal.process(&bytes[..count]);
        let screen: Vec<String> = terminal.screen().rows(0, columns).collect();
        if screens.last() != Some(&screen) {
            screens.push(screen);
        }
    }
    let status = polity.wait().expect("it ends");
    let last = screens.last().cloned().unwrap_or_default();
    Seen {
        last,
        screens,
        status,
    }
}

/// The example with as many machines in place of its own, and without its faults.
fn machines(count: usize) -> tempfile::TempDir {
    let folder = examples::copy("capv-machine");
    let machine = |number: usize| {
        format!(
            "---\napiVersion: capv.polity.dev/v1alpha1\nkind: Machine\nmetadata: {{name: machine-{number:04}, namespace: \
             team-a}}\nspec: {{template: ubuntu-24.04, numCPUs: 2, memoryMiB: 4096, network: {{devices: [{{networkName: \
             vm-network, dhcp4: true}}]}}}}\n"
        )
    };
    let all: String = (0..count).map(machine).collect();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n";
    let scenario = "apiVersion: polity.dev/v1alpha1\nkind: Scenario\nseed: 7\ndeadline: 24h\ncloud:\n  templates: [{name: \
                    ubuntu-24.04}]\n  networks: [{name: vm-network}]\n";
    let write =
        |file: &str, text: &str| std::fs::write(folder.path().join(file), text).expect("it is written");
    write("machines.yaml", &format!("{namespace}{all}"));
    write("scenario.yaml", scenario);
    folder
}

fn line<'a>(screen: &'a [String], part: &str) -> &'a str {
    let found = screen.iter().find(|line| line.contains(part));
    found.unwrap_or_else(|| panic!("no {part:?} in\n{}", screen.join("\n")))
}

#[test]
fn a_terminal_shows_every_object_with_its_phase_and_what_it_waits_for() {
    for size in [(80, 24), (200, 50)] {
        let seen = run(&machines(10), size, &["--speed", "100"]);
        let shown = seen.last.join("\n");
        assert!(seen.status.success(), "{size:?}\n{shown}");
        let summary = line(&seen.last, "10 objects: ");
        assert!(
            summary.contains("[####################] 10 objects: 10 settled; "),
            "{shown}"
        );
        assert!(line(&seen.last, "KIND").contains("PHASE"), "{shown}");
        for number in 0..10 {
            let row = line(&seen.last, &format!("team-a/machine-{number:04}"));
            assert!(
                row.starts_with("Machine ") && row.contains(" Running "),
                "{size:?}: {row}"
            );
        }
        assert!(shown.contains("polity: everything is settled"), "{shown}");
        assert!(
            !shown.contains("→"),
            "a line for each change belongs into a pipe:\n{shown}"
        );
        let working = seen
            .screens
            .iter()
            .filter(|screen| screen.join("").contains(" working"));
        assert!(working.count() > 0, "the table was shown while there was work");
    }
}

#[test]
fn a_table_that_does_not_fit_shows_as_many_objects_as_there_is_room_for_and_counts_the_others() {
    let many = machines(400);
    for (columns, rows) in [(80, 24), (200, 50)] {
        let seen = run(&many, (columns, rows), &["--speed", "100"]);
        let shown = seen.last.join("\n");
        assert!(seen.status.success(), "{shown}");
        let summary = line(&seen.last, "400 objects");
        let count = |word: &str| {
            let before = summary.split_once(word).map_or("", |(before, _)| before);
            let number = before.rsplit([' ', ',']).next();
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        // On a slow machine one that looks again may be at it while the last table is drawn.
        let (settled, working): (u32, u32) = (count(" settled; "), count(" working"));
        assert!(settled + working == 400 && working < 20, "{shown}");
        let objects = seen
            .last
            .iter()
            .filter(|line| line.contains("team-a/machine-"))
            .count();
        let more = format!("… and {} more", 400 - objects);
        assert!(objects > usize::from(rows) / 2, "{shown}");
        line(&seen.last, &more);
        let whole = seen
            .screens
            .iter()
            .filter(|screen| screen.iter().any(|line| line.contains("KIND  ")));
        for screen in whole {
            let tables = screen.iter().filter(|line| line.starts_with("KIND  ")).count();
            assert_eq!(
                tables,
                1,
                "an earlier table is left on the screen:\n{}",
                screen.join("\n")
            );
        }
    }
}

#[test]
fn with_lines_a_terminal_shows_what_a_pipe_gets() {
    // Wider than the longest line: which edges stand in one line depends on how fast the machine is.
    let seen = run(&machines(2), (1_000, 50), &["--speed", "100", "--lines"]);
    let shown = seen.last.join("\n");
    assert!(seen.status.success(), "{shown}");
    assert!(shown.contains("→ settled, looks again in "), "{shown}");
    assert!(!shown.contains("KIND"), "{shown}");
}

#[test]
fn what_a_binding_that_does_not_load_says_stands_above_the_table_and_in_it() {
    let folder = machines(1);
    let binding = folder.path().join("binding.yaml");
    let text = std::fs::read_to_string(&binding).expect("the binding");
    std::fs::write(&binding, text.replace("name: sim", "name: no-such-cloud")).expect("it is written");
    let seen = run(&folder, (120, 30), &["--speed", "max"]);
    let shown = seen.last.join("\n");
    assert_eq!(seen.status.code(), Some(1), "{shown}");
    let told = seen
        .last
        .iter()
        .filter(|line| line.contains("no-such-cloud"))
        .count();
    assert!(told >= 2, "{shown}");
    assert!(
        shown.contains("polity: not settled, and nothing can change that any more:"),
        "{shown}"
    );
}
