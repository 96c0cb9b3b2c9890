//! Where in a document an error is.

use std::fmt;

/// The most paths that are reported of fields that are unknown, or that a text has twice: as many as a real API server
/// reports (sigs.k8s.io/json).
pub const MOST: usize = 100;

/// The most bytes of a path that are reported: a path can be as long as the body.
const PATH: usize = 256;

/// A path, cut to a length that can be reported.
pub fn shortened(mut path: String) -> String {
    if path.len() > PATH {
        path.truncate(path.floor_char_boundary(PATH));
        path.push('…');
    }
    path
}

/// The place of a value or of a schema. The text is made only for errors, because most values are valid.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root(&'a str),
    Field(&'a str),
    Item(usize),
    /// A field whose name its author chose, in a schema: `properties[size]`.
    Key(&'a str),
}

impl<'a> Path<'a> {
    pub(super) const ROOT: Path<'static> = Path::root("");

    /// The path of a document that stands at this place in another one.
    pub(super) const fn root(place: &'a str) -> Path<'a> {
        Path {
            parent: None,
            step: Step::Root(place),
        }
    }

    pub(super) fn field(&'a self, name: &'a str) -> Path<'a> {
        self.below(Step::Field(name))
    }

    pub(super) fn item(&'a self, index: usize) -> Path<'a> {
        self.below(Step::Item(index))
    }

    pub(super) fn key(&'a self, name: &'a str) -> Path<'a> {
        self.below(Step::Key(name))
    }

    fn below(&'a self, step: Step<'a>) -> Path<'a> {
        Path {
            parent: Some(self),
            step,
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self.step, Step::Root(""))
    }

    /// The path for people, who are told also where the whole document is wrong.
    pub(super) fn named(&self) -> String {
        if self.is_empty() {
            "(document)".to_owned()
        } else {
            shortened(self.to_string())
        }
    }
}

/// `spec.disks[0].size`
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root(place) => f.write_str(place),
            Step::Field(name) if self.parent.is_none_or(Path::is_empty) => f.write_str(name),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Item(index) => write!(f, "[{index}]"),
            Step::Key(name) => write!(f, "[{name}]"),
        }
    }
}
