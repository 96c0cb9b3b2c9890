//! WebAssembly as gzip makes it smaller: a quarter of its size, so that a policy fits in a ConfigMap.

use std::io::{Read as _, Write as _};

use anyhow::{Context as _, Result, bail};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// The first bytes of a gzip file. No WebAssembly begins with them.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What is in a file, of at most so many bytes. The first bytes of the file tell whether gzip has packed it, whatever its name
/// is.
///
/// # Errors
/// It is damaged, or larger.
pub fn unpacked(file: Vec<u8>, largest: u64) -> Result<Vec<u8>> {
    if !file.starts_with(&GZIP) {
        return Ok(file);
    }
    let mut bytes = Vec::new();
    // A file that unpacks to terabytes is read up to the limit.
    let read = MultiGzDecoder::new(&*file)
        .take(largest + 1)
        .read_to_end(&mut bytes);
    read.context("the gzip file cannot be unpacked: it is damaged or cut off")?;
    if bytes.len() as u64 > largest {
        bail!("the gzip file unpacks to more than {} MiB", largest >> 20);
    }
    Ok(bytes)
}

/// WebAssembly as a gzip file. It has no time and no name in it, so equal bytes make equal files.
pub fn packed(wasm: &[u8]) -> Result<Vec<u8>> {
    let mut file = GzEncoder::new(Vec::new(), Compression::best());
    file.write_all(wasm)?;
    Ok(file.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_unpacked_if_gzip_made_it_and_is_left_as_it_is_otherwise() {
        let wasm = b"\0asm and more".to_vec();
        let file = packed(&wasm).expect("packed");
        assert_eq!(
            file,
            packed(&wasm).expect("packed"),
            "equal bytes make equal files"
        );
        assert_eq!(unpacked(file.clone(), 1 << 20).expect("unpacked"), wasm);
        assert_eq!(unpacked(wasm.clone(), 1 << 20).expect("read"), wasm);
        // Files of gzip, one after another, are one file.
        let twice = [file.clone(), file].concat();
        assert_eq!(
            unpacked(twice, 1 << 20).expect("unpacked"),
            [wasm.clone(), wasm].concat()
        );
    }

    #[test]
    fn a_file_that_is_cut_off_or_unpacks_to_too_much_is_refused() {
        let mut file = packed(&vec![0; 2 << 20]).expect("packed");
        assert!(file.len() < 10_000);
        assert_eq!(unpacked(file.clone(), 2 << 20).expect("unpacked").len(), 2 << 20);
        let refused = unpacked(file.clone(), (2 << 20) - 1).expect_err("it is too large");
        assert!(refused.to_string().contains("more than 1 MiB"), "{refused:#}");
        file.truncate(file.len() - 3);
        let refused = unpacked(file, 2 << 20).expect_err("it is cut off");
        assert!(refused.to_string().contains("cut off"), "{refused:#}");
    }
}
