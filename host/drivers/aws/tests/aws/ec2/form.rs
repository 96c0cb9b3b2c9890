//! Forms as a server reads them.

use std::collections::BTreeMap;
use std::ops::Index;

use polity_driver_sdk::{HttpRequest, Piece};

/// The fields of a form.
#[derive(Debug)]
pub struct Fields(BTreeMap<String, String>);

impl Fields {
    /// The form of a request. A sealed value reads as `(sealed)`.
    pub fn of(request: &HttpRequest) -> Self {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Sealed(_) => "(sealed)".to_owned(),
        };
        Fields::read(&request.body.iter().map(piece).collect::<String>())
    }

    /// Reads a body.
    pub fn read(body: &str) -> Self {
        let pairs = body.split('&').map(|pair| pair.split_once('=').expect("a pair"));
        let mut fields = BTreeMap::new();
        for (name, value) in pairs {
            let twice = fields.insert(decoded(name), decoded(value));
            assert_eq!(twice, None, "the field {name} stands there twice");
        }
        Fields(fields)
    }

    pub fn get(&self, name: &str) -> Option<&String> {
        self.0.get(name)
    }

    /// The names and values of the fields below a name, in the order of the names.
    pub fn below(&self, name: &str) -> Vec<(&str, &str)> {
        let below = self
            .0
            .iter()
            .filter_map(|(field, value)| Some((field.strip_prefix(name)?, &**value)));
        below.collect()
    }

    /// The tags of a kind of resource.
    pub fn tags(&self, kind: &str) -> BTreeMap<String, String> {
        let nth = (1..9).find(|nth| self[&*format!("TagSpecification.{nth}.ResourceType")] == kind);
        let at = format!("TagSpecification.{}.Tag", nth.expect("tags of that kind"));
        let tag = |nth: usize| {
            let key = self.get(&format!("{at}.{nth}.Key"))?.clone();
            Some((key, self[&*format!("{at}.{nth}.Value")].clone()))
        };
        (1..).map_while(tag).collect()
    }
}

impl Index<&str> for Fields {
    type Output = String;

    fn index(&self, name: &str) -> &String {
        self.get(name)
            .unwrap_or_else(|| panic!("no field {name} in {self:?}"))
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().expect("a digit"), rest.next().expect("a digit")];
                u8::from_str_radix(std::str::from_utf8(&digits).expect("ASCII"), 16).expect("hexadecimal")
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).expect("UTF-8")
}
