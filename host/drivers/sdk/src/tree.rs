//! Reads XML responses. An element is an object whose fields are lists of elements; its text is the field `$text`.

use serde_json::Value;

/// The elements at a path (`Envelope/Body/Fault`), below all elements on the way.
pub fn all<'a>(from: &'a Value, path: &str) -> Vec<&'a Value> {
    path.split('/').fold(vec![from], |found, name| {
        let children = found
            .into_iter()
            .filter_map(|element| element.get(name)?.as_array());
        children.flatten().collect()
    })
}

/// The first element at a path.
pub fn first<'a>(from: &'a Value, path: &str) -> Option<&'a Value> {
    all(from, path).into_iter().next()
}

/// The text of the first element at a path; empty if there is none.
pub fn text<'a>(from: &'a Value, path: &str) -> &'a str {
    first(from, path).map_or("", own_text)
}

/// The text of an element itself.
pub fn own_text(element: &Value) -> &str {
    element.get("$text").and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_are_found_through_all_on_the_way() {
        let tree = json!({"r": [{"i": [{"id": [{"$text": "1"}]}]}, {"i": [{"id": [{"$text": "2"}]}, {}]}]});
        let ids: Vec<&str> = all(&tree, "r/i")
            .into_iter()
            .map(|item| text(item, "id"))
            .collect();
        assert_eq!(ids, ["1", "2", ""]);
        assert_eq!((text(&tree, "r/x"), first(&tree, "no")), ("", None));
    }
}
