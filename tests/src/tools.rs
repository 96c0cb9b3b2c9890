//! Helm and promtool as published. They check what `host/deploy` installs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::kubernetes::{Found, fetch};
use crate::skip::Skip;

/// The folder with helm and promtool.
#[derive(Debug, Clone)]
pub struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Finds the programs, building them when this machine has none: minutes, with progress on stderr.
    /// The answer is kept for the life of the process.
    ///
    /// # Errors
    /// [`Skip`] where they would have to be built and Go is absent or too old.
    ///
    /// # Panics
    /// When the build fails; and instead of the skip when `POLITY_NO_SKIP=1`.
    pub fn find() -> Result<Self, Skip> {
        static FOUND: OnceLock<Found> = OnceLock::new();
        let folder = FOUND
            .get_or_init(|| fetch(&["helm", "promtool"]))
            .folder("helm")?;
        Ok(Tools { folder })
    }

    /// Where one of the programs is.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Helm, whose caches and settings go to `home`. Without a kubeconfig it talks to no cluster.
    #[must_use]
    pub fn helm(&self, home: &Path, kubeconfig: Option<&Path>) -> Command {
        let mut command = Command::new(self.program("helm"));
        let nothing = Path::new("/dev/null");
        command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin");
        command.env("KUBECONFIG", kubeconfig.unwrap_or(nothing));
        command
    }

    /// Promtool.
    #[must_use]
    pub fn promtool(&self) -> Command {
        Command::new(self.program("promtool"))
    }
}
