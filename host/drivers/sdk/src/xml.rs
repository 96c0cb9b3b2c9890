//! Makes the XML that is sent. No other code makes XML, so no text of an argument can become an element.

use crate::Transform;
use crate::request::{Pieces, Text};

/// An element.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    content: Vec<Content>,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Element(Element),
    Text(Text),
}

impl Element {
    /// An empty element.
    pub fn new(name: &'static str) -> Self {
        Element {
            name,
            attributes: Vec::new(),
            content: Vec::new(),
        }
    }

    /// An element with a text.
    pub fn text(name: &'static str, text: impl Into<Text>) -> Self {
        let mut element = Element::new(name);
        element.content.push(Content::Text(text.into()));
        element
    }

    /// With an attribute.
    #[must_use]
    pub fn attribute(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// With an element inside.
    #[must_use]
    pub fn with(mut self, child: Element) -> Self {
        self.content.push(Content::Element(child));
        self
    }

    /// With elements inside.
    #[must_use]
    pub fn with_all(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.content.extend(children.into_iter().map(Content::Element));
        self
    }

    pub(crate) fn document(&self) -> Pieces {
        let mut pieces = Pieces::default();
        pieces.text("<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
        self.write(&mut pieces);
        pieces
    }

    fn write(&self, out: &mut Pieces) {
        out.text(&format!("<{}", self.name));
        for (name, value) in &self.attributes {
            out.text(&format!(" {name}=\"{}\"", escaped(value)));
        }
        if self.content.is_empty() {
            return out.text("/>");
        }
        out.text(">");
        for content in &self.content {
            match content {
                Content::Element(element) => element.write(out),
                Content::Text(text) => out.escaped(text, escaped, Transform::Xml),
            }
        }
        out.text(&format!("</{}>", self.name));
    }
}

/// Text, escaped for XML. Characters that XML 1.0 does not allow become the replacement character.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push_str(&format!("&#{};", u32::from(character))),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::{Part, Piece, Sealed};

    #[test]
    fn a_text_stays_a_text() {
        let root = Element::new("a")
            .attribute("t", "\"<\n")
            .with(Element::text("b", "</b><c>&\u{1}"))
            .with(Element::new("d"));
        let request = Request::search("sdk").xml("text/xml", &root).done();
        let Piece::Text(text) = &request.body[0] else {
            panic!()
        };
        assert!(
            text.ends_with("<a t=\"&quot;&lt;&#10;\"><b>&lt;/b&gt;&lt;c&gt;&amp;\u{fffd}</b><d/></a>"),
            "{text}"
        );
    }

    #[test]
    fn a_sealed_text_is_escaped_by_the_host() {
        let sealed = Sealed {
            parts: vec![Part::Argument("userData".into())],
            then: Vec::new(),
        };
        let root = Element::text("v", Text::Sealed(sealed));
        let request = Request::search("sdk").xml("text/xml", &root).done();
        assert!(matches!(&request.body[1], Piece::Sealed(sealed) if sealed.then == [Transform::Xml]));
    }
}
