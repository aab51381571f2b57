//! Compiles the proto files for those who ask for them by reflection.

use prost::Message;
use std::error::Error;
use std::path::Path;

const SERVICES: [&str; 5] = [
    "envoy/service/ratelimit/v3/rls.proto",
    "tollgate/v1/tollgate.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "grpc/reflection/v1alpha/reflection.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(SERVICES, ["proto"])?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("services.binpb"), files.encode_to_vec())?;
    Ok(())
}
