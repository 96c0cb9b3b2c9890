//! Files and folders that only the host's user may read and write. They hold objects with their Secrets,
//! tokens, and recordings.
//!
//! - Folders have mode 0700 and files mode 0600 from the moment they are created, whatever the umask is.
//! - A symbolic link is not followed where another user could have put it. Only a path that the user named
//!   may lead through links.
//! - A file or folder that existed before must belong to this user. Its mode is narrowed. A folder that also
//!   holds other things is refused instead, because it may be shared for a reason.
//! - A file that others may read is replaced in the same way, with the mode that the umask gives.
//! - A replaced file is first written under another name and then renamed, so a reader sees the old or the
//!   new file as a whole.

use std::fs::DirBuilder;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat};

/// The mode of folders.
const FOLDER: u32 = 0o700;
/// The mode of files.
const FILE: u32 = 0o600;
/// The mode of files that others may read, before the umask.
const FILE_FOR_ALL: u32 = 0o666;
/// The bits that give rights to other users.
const OTHERS: u32 = 0o077;

/// Opens a folder that the user named, and creates it if it is missing. `is_own` tells which names in it this
/// program writes.
///
/// # Errors
/// The folder belongs to another user, or others may enter it and it holds other things as well.
pub(crate) fn folder(path: &Path, is_own: fn(&str) -> bool) -> Result<Dir> {
    let at = || path.display().to_string();
    let mut builder = DirBuilder::new();
    let created = builder.recursive(true).mode(FOLDER).create(path);
    created.with_context(|| format!("cannot create {}", at()))?;
    let dir = opened(path, OFlags::empty()).with_context(|| format!("cannot open {}", at()))?;
    let mode = owned(&dir, FileType::Directory).with_context(at)?;
    if mode & OTHERS != 0 {
        for entry in dir.entries().with_context(at)? {
            let name = entry.with_context(at)?.file_name();
            if !name.to_str().is_some_and(is_own) {
                bail!(
                    "{} is open to others (mode {mode:04o}) and holds {name:?} beside what Polity keeps: name a folder \
                     of its own, or make it yours alone with chmod 700",
                    at()
                );
            }
        }
        narrow(&dir, FOLDER).with_context(at)?;
    }
    Ok(dir)
}

/// Opens a folder of this program in a place where other users may write, for example `/tmp`, and creates it
/// if it is missing.
///
/// # Errors
/// The path is a symbolic link, not a folder, or belongs to another user.
pub(crate) fn folder_among_others(path: &Path) -> io::Result<Dir> {
    match DirBuilder::new().mode(FOLDER).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let dir = opened(path, OFlags::NOFOLLOW)?;
    own(&dir, FileType::Directory, FOLDER)?;
    Ok(dir)
}

/// Opens a folder itself. cap-std would open it with `O_PATH`, and the mode of such a handle cannot be
/// changed.
fn opened(path: &Path, more: OFlags) -> io::Result<Dir> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | more;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| said(e.into()))?;
    Ok(Dir::from_std_file(opened.into()))
}

/// Creates a new folder with an unpredictable name.
pub(crate) fn fresh_folder(within: &Path, prefix: &str) -> io::Result<PathBuf> {
    let path = within.join(format!("{prefix}-{}", unforeseen()?));
    DirBuilder::new().mode(FOLDER).create(&path)?;
    Ok(path)
}

/// Whether a path is a folder of this user, and no link to one.
pub(crate) fn is_own_folder(path: &Path) -> bool {
    opened(path, OFlags::NOFOLLOW).is_ok_and(|dir| owned(&dir, FileType::Directory).is_ok())
}

/// Opens a folder inside a private folder, and creates it if it is missing.
pub(crate) fn subfolder(dir: &Dir, name: &str) -> io::Result<Dir> {
    use cap_std::fs::DirBuilderExt as _;
    let mut builder = cap_std::fs::DirBuilder::new();
    match dir.create_dir_with(name, builder.mode(FOLDER)) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let file = dir.open_with(name, options.read(true).custom_flags(bits(flags)));
    let opened = Dir::from_std_file(file.map_err(said)?.into_std());
    own(&opened, FileType::Directory, FOLDER)?;
    Ok(opened)
}

/// Opens a file in a private folder. A new file has the right mode from the start.
///
/// # Errors
/// The path is a symbolic link, not a file, or belongs to another user.
pub(crate) fn open(dir: &Dir, name: &str, options: &mut OpenOptions) -> io::Result<File> {
    // Without `NONBLOCK`, opening a named pipe would block until somebody writes to it.
    let flags = bits(OFlags::NOFOLLOW | OFlags::NONBLOCK);
    let file = dir.open_with(name, options.mode(FILE).custom_flags(flags));
    let file = file.map_err(said)?;
    own(&file, FileType::RegularFile, FILE)?;
    Ok(file)
}

/// Opens a file to read that may belong to another user, such as a recording.
///
/// # Errors
/// The path is no file: a named pipe would hold up its reader until somebody writes to it.
pub(crate) fn open_of_others(dir: &Dir, name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(bits(OFlags::NONBLOCK));
    let file = dir.open_with(name, options)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"))
    }
}

/// Reads a file; `None` if it does not exist.
pub(crate) fn read(dir: &Dir, name: &str) -> io::Result<Option<String>> {
    let text = bytes(dir, name)?.map(String::from_utf8).transpose();
    text.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// The same of a file that is no text.
pub(crate) fn bytes(dir: &Dir, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match open(dir, name, OpenOptions::new().read(true)) {
        Ok(mut file) => file.read_to_end(&mut bytes).map(|_| Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Replaces a file in a private folder as a whole: whenever the process dies, the file has either the old or
/// the new content.
pub(crate) fn replace(dir: &Dir, name: &str, content: &[u8]) -> io::Result<()> {
    let aside = format!("{name}.new");
    match dir.remove_file(&aside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    put(dir, &aside, name, content, FILE)
}

/// The folder of a file that the user named. Of a bare name it is the current folder, where `Path::parent` is empty.
pub(crate) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Replaces a file that the user named, in a folder that may belong to anybody. A symbolic link at its name
/// is replaced and not followed.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    write_with(path, content, FILE)
}

/// The same of a file that others may read, as far as the umask lets them.
pub(crate) fn write_for_all(path: &Path, content: &[u8]) -> io::Result<()> {
    write_with(path, content, FILE_FOR_ALL)
}

fn write_with(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| io::Error::other("the path does not name a file"))?;
    let dir = Dir::open_ambient_dir(folder_of(path), ambient_authority())?;
    let aside = format!(".{name}.{}", unforeseen()?);
    let put = put(&dir, &aside, name, content, mode);
    if put.is_err() {
        let _ = dir.remove_file(&aside);
    }
    put
}

/// Writes a new file under one name, and then gives it the other.
fn put(dir: &Dir, aside: &str, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
    // A new file is of this user, and no link is followed to it.
    let mut file = dir.open_with(aside, OpenOptions::new().write(true).create_new(true).mode(mode))?;
    file.write_all(content)?;
    file.sync_data()?;
    dir.rename(aside, dir, name)
}

/// Checks that an opened file or folder is of this kind and belongs to this user, and takes the rights of
/// other users away.
fn own(opened: &impl AsFd, kind: FileType, mode: u32) -> io::Result<()> {
    match owned(opened, kind)? & OTHERS {
        0 => Ok(()),
        _ => narrow(opened, mode),
    }
}

/// The mode of an opened file or folder, if it is of this kind and belongs to this user.
fn owned(opened: &impl AsFd, kind: FileType) -> io::Result<u32> {
    let stat = fstat(opened)?;
    let (owner, user) = (stat.st_uid, rustix::process::geteuid().as_raw());
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(io::Error::other(match kind {
            FileType::Directory => "this is not a folder",
            _ => "this is not a regular file",
        }));
    }
    if owner != user {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "this belongs to user {owner}, but the host runs as user {user}: it keeps its data only in files of its own"
            ),
        ));
    }
    Ok(stat.st_mode & 0o7777)
}

fn narrow(opened: &impl AsFd, mode: u32) -> io::Result<()> {
    Ok(fchmod(opened, Mode::from_raw_mode(mode))?)
}

fn bits(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// A clearer message for a link that was not followed: the system's own speaks of too many levels of links.
fn said(error: io::Error) -> io::Error {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::LOOP) => io::Error::other("this is a symbolic link, which is not followed"),
        // Linux reports this for a link where a folder is expected.
        Some(Errno::NOTDIR) => {
            io::Error::other("this is not a folder, or a symbolic link, which is not followed")
        }
        _ => error,
    }
}

fn unforeseen() -> io::Result<String> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(crate::display::hex(&random))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }

    fn is_own(name: &str) -> bool {
        name == "ours"
    }

    #[test]
    fn folders_and_files_are_this_user_s_alone_from_the_beginning() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("a/b");
        let dir = folder(&path, is_own).expect("it is created");
        subfolder(&dir, "inner").expect("it is created");
        replace(&dir, "file", b"one").expect("it is written");
        replace(&dir, "file", b"two").expect("it is replaced");
        write(&path.join("named"), b"three").expect("it is written");
        assert_eq!(read(&dir, "file").expect("read").as_deref(), Some("two"));
        assert_eq!(read(&dir, "none").expect("read"), None);
        for (name, expected) in [("", 0o700), ("inner", 0o700), ("file", 0o600), ("named", 0o600)] {
            assert_eq!(mode(&path.join(name)), expected, "{name}");
        }
        let names: Vec<_> = fs::read_dir(&path).expect("read").flatten().collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }

    #[test]
    fn what_was_open_to_others_is_narrowed_where_it_is_ours() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("data");
        fs::create_dir(&path).expect("created");
        fs::write(path.join("ours"), "old").expect("written");
        fs::create_dir(path.join("inner")).expect("created");
        for (name, wide) in [("", 0o777), ("ours", 0o666), ("inner", 0o755)] {
            chmod(&path.join(name), wide);
        }
        let refused = folder(&path, is_own)
            .map(|_| ())
            .expect_err("something else is in it");
        assert!(format!("{refused:#}").contains("\"inner\""), "{refused:#}");
        assert_eq!(mode(&path), 0o777, "it may be shared for a reason");
        let dir = folder(&path, |_| true).expect("all of it is ours");
        assert_eq!(mode(&path), 0o700);
        assert_eq!(read(&dir, "ours").expect("read").as_deref(), Some("old"));
        assert_eq!(mode(&path.join("ours")), 0o600);
        subfolder(&dir, "inner").expect("it is ours");
        assert_eq!(mode(&path.join("inner")), 0o700);
    }

    #[test]
    fn no_link_is_followed_and_no_pipe_waited_for() {
        let place = tempfile::tempdir().expect("a folder");
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        let elsewhere = place.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("created");
        let path = place.path().join("data");
        let dir = folder(&path, is_own).expect("it is created");
        for name in ["file", "file.new", "aside"] {
            symlink(&victim, path.join(name)).expect("linked");
        }
        symlink(&elsewhere, path.join("inner")).expect("linked");
        symlink(&elsewhere, place.path().join("lent")).expect("linked");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path.join("pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .expect("a pipe");

        assert!(open(&dir, "file", OpenOptions::new().create(true).write(true)).is_err());
        assert!(read(&dir, "file").is_err());
        assert!(read(&dir, "pipe").is_err());
        assert!(subfolder(&dir, "inner").is_err());
        assert!(folder_among_others(&place.path().join("lent")).is_err());
        assert!(folder_among_others(&victim).is_err());
        replace(&dir, "file", b"new").expect("the link is replaced");
        write(&path.join("aside"), b"new").expect("the link is replaced");
        assert_eq!(fs::read_to_string(&victim).expect("read"), "precious");
        assert_eq!(read(&dir, "file").expect("read").as_deref(), Some("new"));
        assert_eq!(read(&dir, "aside").expect("read").as_deref(), Some("new"));
    }

    #[test]
    fn what_belongs_to_somebody_else_is_refused() {
        // The system's files belong to root, unless the test itself runs as root.
        if rustix::process::geteuid().is_root() {
            let place = tempfile::tempdir().expect("a folder");
            let path = place.path().join("theirs");
            fs::create_dir(&path).expect("created");
            std::os::unix::fs::chown(&path, Some(65_534), None).expect("given away");
            assert!(folder_among_others(&path).is_err());
            let refused = folder(&path, is_own).map(|_| ()).expect_err("theirs");
            assert!(
                format!("{refused:#}").contains("belongs to user 65534"),
                "{refused:#}"
            );
        } else {
            assert!(folder_among_others(Path::new("/usr")).is_err());
        }
    }

    #[test]
    fn the_folder_of_a_bare_name_is_the_current_one() {
        for (file, folder) in [
            ("a", "."),
            ("./a", "."),
            ("b/a", "b"),
            ("/a", "/"),
            ("../a", ".."),
        ] {
            assert_eq!(folder_of(Path::new(file)), Path::new(folder), "{file}");
        }
    }

    #[test]
    fn a_fresh_folder_has_a_name_of_its_own() {
        let place = tempfile::tempdir().expect("a folder");
        let (one, other) = (
            fresh_folder(place.path(), "x").expect("made"),
            fresh_folder(place.path(), "x").expect("made"),
        );
        assert_ne!(one, other);
        assert_eq!(mode(&one), 0o700);
    }
}
