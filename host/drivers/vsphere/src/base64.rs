//! Standard base64 with padding, for texts that the driver knows. The host encodes sealed texts.

/// The characters of the 64 values.
const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A text in base64.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len().div_ceil(3) * 4);
    for bytes in text.as_bytes().chunks(3) {
        let byte = |at: usize| bytes.get(at).copied().map_or(0, u32::from);
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let value = (bits >> (18 - 6 * at)) & 63;
            let character = if at > bytes.len() {
                b'='
            } else {
                CHARACTERS[value as usize]
            };
            out.push(char::from(character));
        }
    }
    out
}

/// The decoded text; `None` if the input is not base64, or if the result is not text.
pub(crate) fn decode(encoded: &str) -> Option<String> {
    let encoded: Vec<u8> = encoded
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let padding = encoded.iter().rev().take_while(|byte| **byte == b'=').count();
    if !encoded.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(encoded.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in &encoded[..encoded.len() - padding] {
        bits = bits << 6 | value(*byte)?;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    String::from_utf8(out).ok()
}

fn value(character: u8) -> Option<u32> {
    let at = CHARACTERS.iter().position(|known| *known == character)?;
    u32::try_from(at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("\u{e4}?>", "w6Q/Pg=="),
        ] {
            assert_eq!(encode(text), encoded);
            assert_eq!(decode(encoded).as_deref(), Some(text));
        }
        assert_eq!(decode("Zm\n9v").as_deref(), Some("foo"));
    }

    #[test]
    fn what_is_no_base64_of_a_text_is_refused() {
        for wrong in ["Zg", "Zg=", "Z===", "Z=g=", "{\"a\": 1}", "Zg-_", "/w=="] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
