//! Reflection: the proto files, for tools that have none of their own.

use super::refusal::Refusal;
use super::wire::{Malformed, Reader, Writer};
use crate::fault::{Fault, GrpcCode};
use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The proto files of this crate and what they import, compiled.
const COMPILED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/services.binpb"));

static FILES: LazyLock<Files> = LazyLock::new(|| Files::new(COMPILED));

/// The proto files, and where what is.
#[derive(Debug, Default)]
struct Files {
    encoded: Vec<Vec<u8>>,
    by_name: HashMap<String, usize>,
    by_symbol: HashMap<String, usize>,
    services: Vec<String>,
}

impl Files {
    fn new(compiled: &[u8]) -> Files {
        let mut files = Files::default();
        // What the build has written can be read; if not, there is nothing to tell.
        for file in FileDescriptorSet::decode(compiled).unwrap_or_default().file {
            files.add(&file);
        }
        files
    }

    fn add(&mut self, file: &FileDescriptorProto) {
        let number = self.encoded.len();
        self.encoded.push(file.encode_to_vec());
        self.by_name.insert(file.name().to_owned(), number);
        let package = file.package();
        for service in &file.service {
            let name = format!("{package}.{}", service.name());
            for method in &service.method {
                self.by_symbol.insert(format!("{name}.{}", method.name()), number);
            }
            self.services.push(name.clone());
            self.by_symbol.insert(name, number);
        }
        self.add_types(package, &file.message_type, &file.enum_type, number);
    }

    fn add_types(&mut self, within: &str, messages: &[DescriptorProto], enums: &[EnumDescriptorProto], number: usize) {
        for one in enums {
            self.by_symbol.insert(format!("{within}.{}", one.name()), number);
        }
        for message in messages {
            let name = format!("{within}.{}", message.name());
            self.add_types(&name, &message.nested_type, &message.enum_type, number);
            self.by_symbol.insert(name, number);
        }
    }

    fn file(&self, number: Option<&usize>) -> Option<&[u8]> {
        Some(self.encoded.get(*number?)?)
    }
}

/// What is asked by a `ServerReflectionRequest`.
#[derive(Clone, Copy, Debug)]
enum Asked<'a> {
    Nothing,
    FileByName(&'a str),
    FileBySymbol(&'a str),
    Extension,
    Services,
}

/// Answers a `ServerReflectionRequest` by a `ServerReflectionResponse`.
pub(super) fn answer(message: &[u8], reply: &mut Writer) -> Result<(), Refusal> {
    let (host, asked) = decode(message).map_err(Fault::from)?;
    reply.frame(|reply| {
        reply.bytes(1, host.as_bytes());
        reply.bytes(2, message);
        match asked {
            Asked::FileByName(name) => write_file(reply, FILES.file(FILES.by_name.get(name))),
            Asked::FileBySymbol(symbol) => write_file(reply, FILES.file(FILES.by_symbol.get(symbol))),
            Asked::Services => reply.message(6, |reply| {
                for service in &FILES.services {
                    reply.message(1, |reply| reply.bytes(1, service.as_bytes()));
                }
            }),
            Asked::Extension => write_error(reply, GrpcCode::NotFound, "there are no extensions here"),
            Asked::Nothing => write_error(reply, GrpcCode::InvalidArgument, "nothing was asked for that is known here"),
        }
    });
    Ok(())
}

fn decode(message: &[u8]) -> Result<(&str, Asked<'_>), Malformed> {
    let (mut reader, mut host, mut asked) = (Reader::new(message), "", Asked::Nothing);
    while let Some((number, field)) = reader.field()? {
        match number {
            1 => host = field.text()?,
            3 => asked = Asked::FileByName(field.text()?),
            4 => asked = Asked::FileBySymbol(field.text()?),
            5 | 6 => asked = Asked::Extension,
            7 => asked = Asked::Services,
            _ => {}
        }
    }
    Ok((host, asked))
}

fn write_file(reply: &mut Writer, file: Option<&[u8]>) {
    match file {
        Some(file) => reply.message(4, |reply| reply.bytes(1, file)),
        None => write_error(reply, GrpcCode::NotFound, "there is no such file or name here"),
    }
}

fn write_error(reply: &mut Writer, code: GrpcCode, text: &str) {
    reply.message(7, |reply| {
        reply.number(1, code as u64);
        reply.bytes(2, text.as_bytes());
    });
}
