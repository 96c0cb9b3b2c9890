//! Machine code of policies and drivers, kept from one process to the next. It is code that the host runs, so the folder is as
//! trusted as the program: it belongs to this user alone. Unless another folder is named, it is in the user's cache.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;
use cap_std::fs::Dir;
use polity_sandbox::KeepsCode;
use sha2::{Digest as _, Sha256};

use crate::private;

/// The most files that are kept. Each is of a policy or driver that somebody used.
const MOST: usize = 64;
/// The end of a file's name.
const ENDING: &str = ".code";
/// The bytes of a digest, which stands before the code: a file that was cut short is none, and neither is one that stood under
/// another name.
const DIGEST: usize = 32;

/// A folder of machine code.
#[derive(Debug)]
pub(crate) struct Kept {
    dir: Dir,
}

impl Kept {
    /// Opens or creates the folder.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let dir = private::folder(path, is_own)?;
        Ok(Kept { dir })
    }

    /// Opens or creates the folder in the user's cache, as the XDG Base Directory Specification places it. A user without a
    /// home, such as that of the image, has none, and one that cannot be used is left alone: the host compiles then.
    pub(crate) fn of_user() -> Option<Self> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        let opened = Kept::open(&cache.join("polity/compiled"));
        opened
            .inspect_err(|e| tracing::debug!("machine code is not kept: {e:#}"))
            .ok()
    }

    /// Removes what was kept longest until there is room for one more. The folder may hold other things, which are neither
    /// counted nor touched.
    fn make_room(&self) -> std::io::Result<()> {
        let mut all: Vec<(SystemTime, String)> = Vec::new();
        for entry in self.dir.entries()? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !is_own(&name) {
                continue;
            }
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => all.push((metadata.modified()?.into_std(), name)),
                Ok(_) => {}
                // Another process has just removed it.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        all.sort_unstable();
        let too_many = (all.len() + 1).saturating_sub(MOST);
        for (_, name) in all.into_iter().take(too_many) {
            match self.dir.remove_file(name) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether a file of this name holds machine code, or machine code that is being written: `private::replace` adds `.new`.
fn is_own(name: &str) -> bool {
    name.strip_suffix(".new").unwrap_or(name).ends_with(ENDING)
}

/// The digest of a name and its code. A name has no line end.
fn digest_of(name: &str, code: &[u8]) -> [u8; DIGEST] {
    let text = Sha256::new().chain_update(name).chain_update("\n");
    text.chain_update(code).finalize().into()
}

impl KeepsCode for Kept {
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let kept = private::bytes(&self.dir, &format!("{name}{ENDING}")).ok()??;
        let (digest, code) = kept.split_at_checked(DIGEST)?;
        (*digest == digest_of(name, code)[..]).then(|| code.to_vec())
    }

    fn keep(&self, name: &str, code: &[u8]) {
        let kept = [&digest_of(name, code)[..], code].concat();
        // Two processes may keep the same code at once. The later one then finds its temporary file gone.
        let written = self
            .make_room()
            .and_then(|()| private::replace(&self.dir, &format!("{name}{ENDING}"), &kept));
        if let Err(e) = written {
            tracing::debug!("machine code is not kept: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_read_as_it_was_kept_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("code");
        let kept = Kept::open(&path).expect("it opens");
        assert_eq!(kept.read("a"), None);
        kept.keep("a", b"code");
        let again = Kept::open(&path).expect("it opens");
        assert_eq!(again.read("a").as_deref(), Some(&b"code"[..]));
        std::fs::copy(path.join("a.code"), path.join("b.code")).expect("copied");
        assert_eq!(again.read("b"), None, "it is the code of another policy");
        let file = path.join("a.code");
        let mut bytes = std::fs::read(&file).expect("read");
        bytes.pop();
        std::fs::write(&file, &bytes).expect("written");
        assert_eq!(again.read("a"), None, "it was cut short");
        std::fs::write(&file, b"short").expect("written");
        assert_eq!(again.read("a"), None);
    }

    #[test]
    fn what_was_kept_longest_goes_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = Kept::open(&folder.path().join("code")).expect("it opens");
        for number in 0..MOST + 3 {
            kept.keep(&format!("{number:03}"), b"code");
        }
        assert_eq!(kept.dir.entries().expect("entries").count(), MOST);
        assert_eq!(kept.read("000"), None);
        assert!(kept.read(&format!("{:03}", MOST + 2)).is_some());
    }

    #[test]
    fn other_files_and_folders_beside_the_code_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("code");
        let kept = Kept::open(&path).expect("it opens");
        std::fs::create_dir(path.join("folder.code")).expect("made");
        for number in 0..MOST {
            std::fs::write(path.join(format!("{number}.txt")), "precious").expect("written");
        }
        for number in 0..MOST + 3 {
            kept.keep(&format!("{number:03}"), b"code");
        }
        assert_eq!(kept.read("000"), None);
        assert!(kept.read("003").is_some(), "only code is counted");
        assert_eq!(kept.dir.entries().expect("entries").count(), MOST + MOST + 1);
    }
}
