//! What drivers exchanged with clouds: a ring beside the passes.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use polity_drivers::{Exchanged, Keeps};

use super::segments::Segments;
use super::{EXCHANGES, FOLDERS, subfolder};
use crate::private;

/// The most bytes that are kept, as they lie on the disk.
const RING: u64 = 32 << 20;

/// Writes what was exchanged. What cannot be written is lost, and the next is tried again.
pub struct Exchanges {
    path: PathBuf,
    header: String,
    /// Opened by the first that is kept: most hosts have no driver.
    segments: Mutex<Option<Segments>>,
}

impl Exchanges {
    pub(super) fn new(path: &Path, header: &str) -> Self {
        Exchanges {
            path: path.to_owned(),
            header: header.to_owned(),
            segments: Mutex::default(),
        }
    }

    fn open(&self) -> Result<Segments> {
        let dir = private::folder(&self.path, |name| FOLDERS.contains(&name))?;
        Segments::new(subfolder(&self.path, &dir, EXCHANGES)?, &self.header, Some(RING))
    }

    fn write(&self, exchanged: &Exchanged) -> Result<()> {
        let mut line = serde_json::to_vec(exchanged)?;
        line.push(b'\n');
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &mut *segments
            && open.append(&line).is_ok()
        {
            return Ok(());
        }
        // A new segment helps whatever the cause was, as for passes.
        segments.insert(self.open()?).append(&line)
    }
}

impl Keeps for Exchanges {
    fn keep(&self, exchanged: &Exchanged) {
        if let Err(e) = self.write(exchanged) {
            let connection = &exchanged.connection;
            tracing::warn!(connection, "what a driver exchanged is not recorded: {e:#}");
        }
    }
}
