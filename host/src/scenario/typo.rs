//! What is likely meant by a field that a scenario does not have.

/// The most letters that a name may differ from the one that is meant.
const LETTERS: usize = 3;

/// The words of serde for an unknown field, with the line of the file and the nearest known name in place of all known ones.
pub(super) fn explained(said: &str, text: &str) -> String {
    let mut quoted = said.split('`').skip(1).step_by(2);
    let field = quoted.next().filter(|_| said.contains("unknown field `"));
    let Some(field) = field else {
        return said.to_owned();
    };
    let nearest = quoted.min_by_key(|known| strsim::osa_distance(field, known));
    let nearest = nearest.filter(|known| strsim::osa_distance(field, known) <= LETTERS);
    let has = |line: &str| {
        [format!("{field}:"), format!("\"{field}\"")]
            .iter()
            .any(|name| line.contains(name))
    };
    let line = text
        .lines()
        .position(has)
        .map(|at| format!(", in line {}", at + 1));
    match nearest {
        Some(nearest) => {
            let (before, _) = said.split_once(", expected").unwrap_or((said, ""));
            format!("{before}{}; did you mean `{nearest}`?", line.unwrap_or_default())
        }
        None => format!("{said}{}", line.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_told_with_its_line_and_the_name_that_is_meant() {
        let text = "kind: Scenario\nsteps:\n  - at: 1m\n    patsh: {}\n";
        let said = "steps[0].patsh: unknown field `patsh`, expected one of `at`, `when`, `after`, `apply`, `patch`, `delete`";
        assert_eq!(
            explained(said, text),
            "steps[0].patsh: unknown field `patsh`, in line 4; did you mean `patch`?"
        );
        let far = "steps[0].frobnicate: unknown field `frobnicate`, expected `at` or `when`";
        assert_eq!(explained(far, text), far);
        let other = "steps[0].at: invalid type: map, expected `1m`";
        assert_eq!(explained(other, text), other);
    }
}
