use super::{Field, Malformed, Reader, Writer};

fn fields(bytes: &[u8]) -> Result<Vec<(u32, Field<'_>)>, Malformed> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(|| reader.field().transpose()).collect()
}

#[test]
fn what_is_written_is_read_whatever_its_length() {
    for length in [0, 1, 127, 128, 16_383, 16_384, 100_000] {
        let text = "x".repeat(length);
        let mut writer = Writer::default();
        writer.message(7, |writer| {
            writer.bytes(1, text.as_bytes());
            writer.number(2, u64::MAX);
            writer.plain_number(3, 0);
        });
        let written = writer.take();
        let outer = fields(&written).unwrap();
        let [(7, Field::Bytes(inner))] = outer[..] else { panic!("{outer:?}") };
        assert_eq!(fields(inner).unwrap(), [(1, Field::Bytes(text.as_bytes())), (2, Field::Number(u64::MAX))]);
    }
}

#[test]
fn what_cannot_be_is_named() {
    let cases: [(&[u8], Malformed); 12] = [
        (&[0x08], Malformed::Truncated),
        (&[0x08, 0x80], Malformed::Truncated),
        (&[0x0a, 2, 1], Malformed::Truncated),
        (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Malformed::Truncated),
        (&[0x0d, 1, 2, 3], Malformed::Truncated),
        (&[0x09, 1, 2, 3, 4, 5, 6, 7], Malformed::Truncated),
        (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], Malformed::Number),
        (&[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1], Malformed::Number),
        (&[0x00, 1], Malformed::Tag),
        (&[0x0e, 1], Malformed::Tag),
        (&[0x80, 0x80, 0x80, 0x80, 0x10, 1], Malformed::Tag),
        (&[0x0b, 0x0c], Malformed::Group),
    ];
    for (bytes, malformed) in cases {
        assert_eq!(fields(bytes), Err(malformed), "{bytes:02x?}");
    }
    assert_eq!(Field::Number(1).text(), Err(Malformed::Type));
    assert_eq!(Field::Fixed.number(), Err(Malformed::Type));
    assert_eq!(Field::Bytes(&[0xff]).text(), Err(Malformed::Text));
}
