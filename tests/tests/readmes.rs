//! Checks the Markdown files of this repository: each path in a command and each link exists, and `polity` knows each option
//! of its commands. A command that names tests runs some.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders of the repository. A word of a command that begins with one of them is a path.
const FOLDERS: [&str; 5] = ["examples/", "host/", "policies/", "tests/", "wit/"];
/// The clone of this repository beside the crate of its reader, in the guide for authors of drivers.
const CLONE: &str = "../polity/";

/// The Markdown files of the repository, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = Vec::new();
    let mut folders = vec![repository().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(entry.path());
            } else if kind.is_file() && name.ends_with(".md") {
                let text = fs::read_to_string(entry.path()).expect("text");
                pages.push((entry.path(), text));
            }
        }
    }
    assert!(pages.len() > 20, "{} pages", pages.len());
    pages.sort();
    pages
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder")
}

/// The lines of the shell blocks of a page. A line that goes on after a backslash is one line.
fn shell(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
    for line in text.lines().map(str::trim) {
        match (inside, line) {
            (false, "```sh") => inside = true,
            (false, _) => {}
            (true, "```") => inside = false,
            (true, line) => {
                let part = line.strip_suffix('\\').unwrap_or(line);
                match lines.last_mut().filter(|_| goes_on) {
                    Some(last) => last.push_str(part),
                    None => lines.push(part.to_owned()),
                }
                goes_on = line.ends_with('\\');
            }
        }
    }
    lines
}

/// The paths that a line of a shell block names, from the root of the repository.
fn paths(line: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || "_-./$".contains(c);
    let words: Vec<&str> = line
        .split(|c| !is_part(c))
        .filter(|word| !word.is_empty())
        .collect();
    let mut paths = Vec::new();
    // `go run -C FOLDER ./PACKAGE`: the package is in that folder.
    let mut changed_to = None;
    for pair in words.windows(2) {
        if pair[0] == "-C" {
            changed_to = Some(pair[1]);
        } else if let (Some(folder), Some(package)) = (changed_to, pair[1].strip_prefix("./")) {
            paths.push(format!("{folder}/{package}"));
        }
    }
    let plain = words.iter().map(|word| word.strip_prefix(CLONE).unwrap_or(word));
    let plain = plain.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
    // A path with a variable is made by the commands around it.
    paths.extend(plain.filter(|word| !word.contains('$')).map(str::to_owned));
    paths
}

/// The targets of the links of a page that are files.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter_map(|target| target.split('#').next());
    files
        .filter(|file| !file.is_empty() && !file.contains("://"))
        .collect()
}

/// The arguments of the `polity` commands of a page: in its shell blocks, and in code within its sentences.
fn polity_commands(text: &str) -> Vec<Vec<String>> {
    let lines = shell(text);
    let mut commands: Vec<&str> = Vec::new();
    for part in lines.iter().flat_map(|line| line.split(['|', '&', ';', '>'])) {
        let part = part.trim();
        commands.extend(part.strip_prefix("cargo run -- "));
        commands.extend(part.strip_prefix("polity "));
    }
    let sentences = text.split('`').skip(1).step_by(2);
    commands.extend(sentences.filter_map(|code| code.strip_prefix("polity ")));
    let words = |command: &str| {
        let words = command.split_whitespace().map(|word| word.replace('…', ""));
        // A place-holder such as NAME is as good as a name, which has no capitals.
        words
            .filter(|word| !word.is_empty())
            .map(|word| {
                if word.chars().any(char::is_lowercase) {
                    word
                } else {
                    word.to_lowercase()
                }
            })
            .collect()
    };
    commands.into_iter().map(words).collect()
}

#[test]
fn every_path_in_a_command_exists() {
    let mut missing = Vec::new();
    let mut found = 0;
    for (page, text) in pages() {
        for path in shell(&text).iter().flat_map(|line| paths(line)) {
            found += 1;
            if !repository().join(&path).exists() {
                missing.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
    assert!(found > 20, "{found} paths");
}

#[test]
fn every_link_leads_to_a_file() {
    let mut missing = Vec::new();
    for (page, text) in pages() {
        let folder = page.parent().expect("a folder");
        let absent = links(&text)
            .into_iter()
            .filter(|link| !folder.join(link).exists());
        missing.extend(absent.map(|link| format!("{}: {link}", page.display())));
    }
    assert_eq!(missing, [""; 0]);
}

#[test]
fn polity_knows_every_option_of_a_command() {
    let pages = pages();
    let readmes = pages.iter().filter(|(page, _)| page.ends_with("README.md"));
    let commands: BTreeSet<Vec<String>> = readmes.flat_map(|(_, text)| polity_commands(text)).collect();
    assert!(commands.len() > 30, "{} commands", commands.len());
    for command in commands {
        // With `--help` at its end a command is read, and not performed.
        let read = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
            .args(&command)
            .arg("--help")
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&read.stderr);
        assert!(read.status.success(), "polity {}: {said}", command.join(" "));
    }
}

#[test]
fn every_command_that_names_tests_runs_some() {
    let mut found = 0;
    for (page, text) in pages() {
        let filters = text.split("--test all ").skip(1);
        for filter in filters.filter_map(|rest| rest.split([' ', '`', '\n']).next()) {
            found += 1;
            let this = std::env::current_exe().expect("this program");
            let listed = Command::new(this)
                .args([filter, "--list"])
                .output()
                .expect("it runs");
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            assert!(listed.contains(": test"), "{}: {filter}", page.display());
        }
    }
    assert!(found > 3, "{found} commands");
}

#[test]
fn what_is_missing_is_noticed() {
    assert_eq!(
        paths("go run -C tests/assets ./cmd/absent &")[..1],
        ["tests/assets/cmd/absent"]
    );
    assert_eq!(paths("\"$(tests/absent moto)\" x")[..], ["tests/absent"]);
    assert_eq!(links("[a](b.md#c), [d](https://e)"), ["b.md"]);
    let commands =
        polity_commands("```sh\ncd x && cargo run -- run A --absent \\\n  | cat\n```\n`polity get KIND…`");
    assert_eq!(commands, [vec!["run", "a", "--absent"], vec!["get", "kind"]]);
}
