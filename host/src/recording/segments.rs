//! The segments of a recording: files that lines are appended to, one after another.
//!
//! A full segment is compressed in the background. Whenever the process dies, a segment stands there plain, or
//! compressed, or both; then either is whole.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use cap_std::fs::{Dir, File, OpenOptions};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use polity_clouds::priority;

use super::RECORDED;
use crate::private;

/// The most bytes of one segment. Then the next segment begins.
const SEGMENT: u64 = 4 << 20;
/// The most bytes that are read of one segment. A pass that is larger than a segment has one alone. Of at most two roles it holds
/// the answers, the requests and the conclusion, each of at most [`RECORDED`] bytes, and text in JSON can take twice its
/// length. The rest is for the object.
pub(super) const UNPACKED: u64 = 2 * 2 * 3 * RECORDED + (128 << 20);

/// The segments of a recording that is written.
pub(super) struct Segments {
    folder: Dir,
    /// The first line of each segment.
    header: String,
    /// The most bytes that are kept, of the newest segments; `None` keeps all.
    most: Option<u64>,
    /// The segment to which lines are appended: its number, file and bytes.
    number: u64,
    file: File,
    written: u64,
    /// Whether the last line may be cut short in the file. What is appended to such a line cannot be read.
    is_torn: bool,
    packing: Option<Packing>,
}

impl Segments {
    /// Begins the segment after all that stand in the folder.
    pub(super) fn new(folder: Dir, header: &str, most: Option<u64>) -> Result<Self> {
        let number = numbers(&folder)?.last().map_or(1, |last| last.saturating_add(1));
        let file = create(&folder, number, header)?;
        Ok(Segments {
            folder,
            header: header.to_owned(),
            most,
            number,
            file,
            written: header.len() as u64,
            is_torn: false,
            packing: None,
        })
    }

    /// Appends a line. After a failure the next line begins another segment.
    pub(super) fn append(&mut self, line: &[u8]) -> Result<()> {
        if self.is_torn || self.written + line.len() as u64 > SEGMENT {
            self.begin_next()?;
        }
        let written = self.write(line);
        self.is_torn = written.is_err();
        written
    }

    fn begin_next(&mut self) -> Result<()> {
        let next = self.number.saturating_add(1);
        self.file = create(&self.folder, next, &self.header)?;
        (self.number, self.written, self.is_torn) = (next, self.header.len() as u64, false);
        if let Some(most) = self.most {
            self.drop_old(most)?;
        }
        self.pack();
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> Result<()> {
        self.file
            .write_all(line)
            .context("cannot write to the recording")?;
        self.written += line.len() as u64;
        if rustix::fs::fstat(&self.file)?.st_nlink == 0 {
            bail!("the file of the recording was deleted");
        }
        Ok(())
    }

    /// Drops the oldest segments until the others have room in the ring.
    fn drop_old(&self, most: u64) -> Result<()> {
        let mut all = 0;
        for old in numbers(&self.folder)?.into_iter().rev() {
            for name in [plain(old), packed(old)] {
                let size = match self.folder.metadata(&name) {
                    Ok(file) => file.len(),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(e).with_context(|| format!("cannot look at segment {name}")),
                };
                all += size;
                if all > most.saturating_sub(SEGMENT) && old != self.number {
                    absent(self.folder.remove_file(&name))
                        .with_context(|| format!("cannot remove segment {name}"))?;
                }
            }
        }
        Ok(())
    }

    /// Compresses the full segments, unless that is under way: then those that are left over are compressed
    /// with the next.
    fn pack(&mut self) {
        if self.packing.as_ref().is_none_or(Packing::has_ended) {
            self.packing = Packing::begin(&self.folder, self.number)
                .inspect_err(|e| tracing::warn!("segments of the recording stay uncompressed: {e}"))
                .ok();
        }
    }
}

/// A thread that compresses segments. Dropping it ends it after the segment that it has begun.
struct Packing {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Packing {
    /// Compresses the segments before this one.
    fn begin(folder: &Dir, before: u64) -> io::Result<Self> {
        let (folder, stop) = (folder.try_clone()?, Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let work = move || {
            priority::step_back(priority::WORK);
            priority::leave_a_processor();
            if let Err(e) = pack_before(&folder, before, &stopped) {
                tracing::warn!("segments of the recording stay uncompressed: {e:#}");
            }
        };
        let thread = std::thread::Builder::new()
            .name("compress".to_owned())
            .spawn(work)?;
        Ok(Packing {
            stop,
            thread: Some(thread),
        })
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Packing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has said itself what went wrong.
            let _ = thread.join();
        }
    }
}

fn pack_before(folder: &Dir, before: u64, stop: &AtomicBool) -> Result<()> {
    for number in numbers(folder)?.into_iter().filter(|number| *number < before) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = plain(number);
        let at = || format!("cannot compress segment {name}");
        let mut file = match private::open_of_others(folder, &name) {
            Ok(file) => file,
            // It is compressed already, or the ring has dropped it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e).with_context(at),
        };
        // Speed counts more than size: a busy host fills a segment within seconds.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        io::copy(&mut file, &mut encoder).with_context(at)?;
        let bytes = encoder.finish().with_context(at)?;
        private::replace(folder, &packed(number), &bytes).with_context(at)?;
        match folder.remove_file(&name) {
            // The ring has dropped it meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => absent(folder.remove_file(packed(number))),
            removed => removed,
        }
        .with_context(at)?;
    }
    Ok(())
}

/// That a file was not there to be removed is no failure.
fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn plain(number: u64) -> String {
    format!("{number:06}.jsonl")
}

fn packed(number: u64) -> String {
    format!("{number:06}.jsonl.gz")
}

fn create(folder: &Dir, number: u64, header: &str) -> Result<File> {
    let name = plain(number);
    let mut options = OpenOptions::new();
    let mut file = private::open(folder, &name, options.append(true).create_new(true))
        .with_context(|| format!("cannot create segment {name}"))?;
    if let Err(e) = writeln!(file, "{header}") {
        // A full disk still takes names. An empty segment must not stay behind.
        let _ = folder.remove_file(&name);
        return Err(e).with_context(|| format!("cannot write segment {name}"));
    }
    Ok(file)
}

/// The numbers of the segments in a folder, oldest first.
pub(super) fn numbers(folder: &Dir) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in folder.entries().context("cannot read the segments")? {
        let name = entry?.file_name();
        let number: Option<u64> = name
            .to_str()
            .and_then(|name| name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".jsonl"))
            .and_then(|number| number.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// A segment that is read.
pub(super) struct Segment {
    /// The name of its file.
    pub(super) name: String,
    text: io::Take<Box<dyn BufRead>>,
}

/// What stands in a line.
pub(super) enum Text {
    Line(Vec<u8>),
    /// More than the reader takes. It is read over, and not kept.
    TooLong,
}

impl Segment {
    /// The next line, if it has at most so many bytes. `None` at the end of the segment, or of what is read of it.
    pub(super) fn line(&mut self, most: u64) -> io::Result<Option<Text>> {
        let mut line = Vec::new();
        let read = (&mut self.text)
            .take(most.saturating_add(1))
            .read_until(b'\n', &mut line)?;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if read as u64 > most {
            self.text.skip_until(b'\n')?;
            return Ok(Some(Text::TooLong));
        }
        Ok((read > 0).then_some(Text::Line(line)))
    }

    /// Whether the segment goes on behind what is read of it.
    pub(super) fn goes_on(&mut self) -> bool {
        self.text.limit() == 0 && self.text.get_mut().fill_buf().is_ok_and(|more| !more.is_empty())
    }
}

/// Opens a segment to read it. `None` if it is gone by now.
pub(super) fn open(folder: &Dir, number: u64) -> Result<Option<Segment>> {
    for name in [plain(number), packed(number)] {
        match private::open_of_others(folder, &name) {
            Ok(file) => {
                let file = BufReader::new(file);
                let text: Box<dyn BufRead> = if name.ends_with(".gz") {
                    Box::new(BufReader::new(GzDecoder::new(file)))
                } else {
                    Box::new(file)
                };
                let text = text.take(UNPACKED);
                return Ok(Some(Segment { name, text }));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).with_context(|| format!("cannot open {name}")),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: u64 = 64 << 20;

    fn folder() -> (tempfile::TempDir, Dir) {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = Dir::open_ambient_dir(folder.path(), cap_std::ambient_authority()).expect("it opens");
        (folder, dir)
    }

    /// A line of a mebibyte that says its number. Text as random as this is hardly compressed.
    fn line(number: u64) -> Vec<u8> {
        let mut state = number.wrapping_add(1);
        let mut letter = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            b'!' + ((state >> 33) % 64) as u8
        };
        let mut line = format!("{number} ").into_bytes();
        line.extend(std::iter::repeat_with(&mut letter).take(1 << 20));
        line.push(b'\n');
        line
    }

    /// The numbers of the lines that can be read.
    fn read(folder: &Dir) -> Vec<u64> {
        let mut lines = Vec::new();
        for number in numbers(folder).expect("numbers") {
            let segment = open(folder, number).expect("it opens").expect("it is there");
            let segment = segment.text.lines().map(|line| line.expect("a line"));
            lines.extend(segment.filter_map(|line| line.split_once(' ')?.0.parse::<u64>().ok()));
        }
        lines
    }

    fn names(folder: &Dir) -> Vec<String> {
        let names = folder.entries().expect("entries");
        let mut names: Vec<String> = names
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn full_segments_are_compressed_and_nothing_of_them_is_lost() {
        let (_folder, dir) = folder();
        let mut segments = Segments::new(dir.try_clone().expect("a copy"), "{}", None).expect("it opens");
        for number in 0..10 {
            segments.append(&line(number)).expect("room");
        }
        // Ended in the middle, it is gone on with.
        drop(segments.packing.take().expect("segments are full"));
        segments.pack();
        let thread = segments
            .packing
            .as_mut()
            .and_then(|packing| packing.thread.take());
        thread.expect("a thread").join().expect("it ends");
        assert_eq!(
            names(&dir),
            [
                "000001.jsonl.gz",
                "000002.jsonl.gz",
                "000003.jsonl.gz",
                "000004.jsonl"
            ]
        );
        assert_eq!(read(&dir), (0..10).collect::<Vec<_>>());
        drop(segments);
        let again = Segments::new(dir.try_clone().expect("a copy"), "{}", None).expect("it opens");
        assert_eq!(again.number, 5, "a compressed segment's number is taken");
    }

    #[test]
    fn a_ring_keeps_the_newest_passes_within_its_bytes() {
        let (_folder, dir) = folder();
        let mut segments =
            Segments::new(dir.try_clone().expect("a copy"), "{}", Some(RING)).expect("it opens");
        for number in 0..150 {
            segments.append(&line(number)).expect("room");
        }
        drop(segments);
        let lines = read(&dir);
        assert_eq!(lines.last(), Some(&149));
        assert!(lines.windows(2).all(|two| two[0] + 1 == two[1]), "{lines:?}");
        assert!(lines.len() > 50, "{lines:?}");
        let size = |name: &String| dir.metadata(name).expect("a file").len();
        let all: u64 = names(&dir).iter().map(size).sum();
        assert!(all <= RING, "{all} bytes");
    }

    #[test]
    fn no_line_is_appended_to_one_that_a_full_disk_cut_short() {
        let (_folder, dir) = folder();
        let mut segments = Segments::new(dir.try_clone().expect("a copy"), "{}", None).expect("it opens");
        let mut torn = line(0);
        torn.truncate(10);
        segments.file.write_all(&torn).expect("room");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let segment = std::mem::replace(&mut segments.file, File::from_std(full.expect("it opens")));
        assert!(segments.append(&line(0)).is_err(), "the disk is full");
        segments.file = segment;
        segments.append(&line(1)).expect("there is room again");
        assert!(read(&dir).contains(&1), "{:?}", names(&dir));
    }

    #[test]
    fn a_line_that_is_too_long_is_read_over_and_a_segment_is_read_to_a_limit() {
        let (_folder, dir) = folder();
        dir.write(plain(1), format!("{}\n12345\n123456\nend", "x".repeat(1 << 20)))
            .expect("room");
        let mut segment = open(&dir, 1).expect("it opens").expect("it is there");
        let mut next = || match segment.line(5).expect("a line")? {
            Text::Line(line) => Some(String::from_utf8(line).expect("text")),
            Text::TooLong => Some("too long".to_owned()),
        };
        let lines: Vec<String> = std::iter::from_fn(&mut next).collect();
        assert_eq!(lines, ["too long", "12345", "too long", "end"]);
        assert!(!segment.goes_on());

        let sparse = dir.create(plain(2)).expect("room");
        sparse.set_len(40 << 30).expect("it has holes");
        let mut segment = open(&dir, 2).expect("it opens").expect("it is there");
        assert!(matches!(segment.line(1 << 20), Ok(Some(Text::TooLong))));
        assert!(matches!(segment.line(1 << 20), Ok(None)) && segment.goes_on());
    }

    #[test]
    fn a_segment_that_stands_there_twice_is_read_once() {
        let (_folder, dir) = folder();
        let mut segments = Segments::new(dir.try_clone().expect("a copy"), "{}", None).expect("it opens");
        segments.append(&line(0)).expect("room");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder
            .write_all(&dir.read(plain(1)).expect("it is there"))
            .expect("memory");
        dir.write(packed(1), encoder.finish().expect("memory"))
            .expect("room");
        assert_eq!(read(&dir), [0]);
    }
}
