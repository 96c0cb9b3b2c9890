//! The files of a guide's page, and how the names of its example become other names.

/// The files of a page: each is named by a line of its own, in backquotes, before its fenced block.
pub(super) fn files(page: &'static str) -> impl Iterator<Item = (&'static str, String)> {
    let mut lines = page.lines();
    std::iter::from_fn(move || {
        let name = lines.by_ref().find_map(named)?;
        let opening = lines.by_ref().find(|line| line.starts_with("```"))?;
        let fence = opening.trim_end_matches(|c| c != '`');
        let block = lines.by_ref().take_while(|line| *line != fence);
        Some((name, block.map(|line| format!("{line}\n")).collect()))
    })
}

fn named(line: &str) -> Option<&str> {
    let name = line.strip_prefix('`')?.strip_suffix('`')?;
    (!name.contains('`')).then_some(name)
}

/// A text in which words are replaced, the first of the list that fits. What was put in is not looked at again.
pub(super) fn replaced(text: &str, words: &[(&str, &str)]) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(first) = rest.chars().next() {
        let found = words.iter().find(|(word, _)| rest.starts_with(word));
        let (taken, put) = found.map_or((first.len_utf8(), &rest[..first.len_utf8()]), |(word, put)| {
            (word.len(), put)
        });
        out.push_str(put);
        rest = &rest[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_files_and_a_block_may_hold_shorter_fences() {
        let page = "# A\n\n`a.md`\n\n````md\none\n```sh\ntwo\n```\n````\n\nSays `b`.\n\n```sh\nno file\n```\n\n`c/d.rs`\n\n```rust\nfn d() {}\n```\n";
        let found: Vec<_> = files(page).collect();
        let wanted = [
            ("a.md", "one\n```sh\ntwo\n```\n".to_owned()),
            ("c/d.rs", "fn d() {}\n".to_owned()),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_was_put_in_is_not_replaced_again() {
        let words = [("lamplighter", "lamp-post"), ("lamps", "gates"), ("lamp", "gate")];
        assert_eq!(
            replaced("lamplighter: lamps, a lamp", &words),
            "lamp-post: gates, a gate"
        );
    }
}
