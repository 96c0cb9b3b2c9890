//! Filters as EC2 applies them: a star matches any text, a question mark any character; a backslash escapes both.

use super::Instance;
use super::form::Fields;

/// Whether an instance fits all filters of a request.
pub fn fits(form: &Fields, instance: &Instance) -> bool {
    let filter = |nth: usize| {
        Some((
            form.get(&format!("Filter.{nth}.Name"))?,
            format!("Filter.{nth}.Value."),
        ))
    };
    (1..).map_while(filter).all(|(name, values)| {
        let known = known(name, instance);
        form.below(&values).iter().any(|(_, pattern)| {
            let pattern: Vec<char> = pattern.chars().collect();
            known
                .iter()
                .any(|value| like(&pattern, &value.chars().collect::<Vec<_>>()))
        })
    })
}

/// The value of an instance that a filter compares.
fn known(name: &str, instance: &Instance) -> Vec<String> {
    match name {
        "instance-state-name" => vec![instance.state.to_owned()],
        "client-token" => vec![instance.token.clone()],
        "tag-key" => instance.tags.keys().cloned().collect(),
        other => {
            let tag = other
                .strip_prefix("tag:")
                .unwrap_or_else(|| panic!("no filter {other}"));
            instance
                .tags
                .get(tag)
                .into_iter()
                .map(|value| value.clone().unwrap_or_default())
                .collect()
        }
    }
}

fn like(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|skipped| like(rest, &text[skipped..])),
        ['?', rest @ ..] => !text.is_empty() && like(rest, &text[1..]),
        ['\\', plain, rest @ ..] | [plain, rest @ ..] => {
            text.first() == Some(plain) && like(rest, &text[1..])
        }
    }
}
