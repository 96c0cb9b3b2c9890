//! Where in an object an error is.

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

/// The place of a value inside its object. The text is made only for errors, because most values are valid.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Item(usize),
}

impl<'a> Path<'a> {
    pub(super) const ROOT: Path<'static> = Path {
        parent: None,
        step: Step::Root,
    };

    pub(super) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            step: Step::Field(name),
        }
    }

    pub(super) fn item(&'a self, index: usize) -> Path<'a> {
        Path {
            parent: Some(self),
            step: Step::Item(index),
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
            Step::Root => Ok(()),
            Step::Field(name) if self.parent.is_none_or(|p| matches!(p.step, Step::Root)) => {
                f.write_str(name)
            }
            Step::Field(name) => write!(f, ".{name}"),
            Step::Item(index) => write!(f, "[{index}]"),
        }
    }
}

/// `parent.child`, without a dot at the root.
pub(super) fn child(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}
