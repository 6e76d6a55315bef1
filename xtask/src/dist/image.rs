//! A container image of nothing but the binary, as an OCI archive (image-spec 1.1): `podman load -i`, `skopeo copy oci-archive:`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{Release, sha256};
use crate::command::run as succeed;

/// A file of the image, by its hash.
struct Blob {
    digest: String,
    size: usize,
}

/// Writes the archive.
pub(super) fn write(release: &Release, binary: &Path, architecture: &str) -> anyhow::Result<()> {
    let name = format!("pmbpf-{}-{architecture}.oci", release.version);
    let layout = release.folder.join(&name);
    fs::create_dir_all(layout.join("blobs/sha256"))?;
    let (layer, plain) = layer(release, binary, &layout)?;
    let created = release.date_in_words()?;
    let config = json!({
        "architecture": architecture, "os": "linux", "created": created,
        "config": {
            "Entrypoint": ["/usr/bin/pmbpf"], "Cmd": ["serve"], "User": "0:0", "WorkingDir": "/",
            "ExposedPorts": {"9477/tcp": {}},
            "Labels": {
                "org.opencontainers.image.title": "pmbpf",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [plain]},
        "history": [{"created": created, "created_by": "cargo xtask dist"}],
    });
    let config = blob(&layout, config.to_string().as_bytes())?;
    let of = |blob: &Blob, kind: &str| json!({"mediaType": kind, "digest": blob.digest, "size": blob.size});
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": of(&config, "application/vnd.oci.image.config.v1+json"),
        "layers": [of(&layer, "application/vnd.oci.image.layer.v1.tar+gzip")],
    });
    let manifest = blob(&layout, manifest.to_string().as_bytes())?;
    let mut entry: Value = of(&manifest, "application/vnd.oci.image.manifest.v1+json");
    entry["platform"] = json!({"architecture": architecture, "os": "linux"});
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": format!("pmbpf:{}", release.version)});
    fs::write(layout.join("index.json"), json!({"schemaVersion": 2, "manifests": [entry]}).to_string())?;
    fs::write(layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
    release.tar(&release.folder.join(format!("{name}.tar")), &layout, ".")?;
    fs::remove_dir_all(&layout)?;
    Ok(())
}

/// The only layer, and the hash of what it is uncompressed.
fn layer(release: &Release, binary: &Path, layout: &Path) -> anyhow::Result<(Blob, String)> {
    let work: PathBuf = layout.with_extension("layer");
    fs::create_dir_all(work.join("root/usr/bin"))?;
    fs::copy(binary, work.join("root/usr/bin/pmbpf"))?;
    let file = work.join("layer.tar");
    release.tar(&file, &work.join("root"), "usr")?;
    let plain = format!("sha256:{}", sha256(&fs::read(&file)?));
    succeed(Command::new("gzip").args(["-9", "-n"]).arg(&file))?;
    let layer = blob(layout, &fs::read(work.join("layer.tar.gz"))?)?;
    fs::remove_dir_all(&work)?;
    Ok((layer, plain))
}

fn blob(layout: &Path, bytes: &[u8]) -> anyhow::Result<Blob> {
    let hash = sha256(bytes);
    fs::write(layout.join("blobs/sha256").join(&hash), bytes)?;
    Ok(Blob { digest: format!("sha256:{hash}"), size: bytes.len() })
}
