//! Container images of nothing but the binary, as OCI archives (image-spec 1.1): one for each processor, and
//! one of both with an index. They load with `podman load -i`, `docker load -i`, `ctr images import`, `skopeo
//! copy --all oci-archive:`.

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

/// Name of the image. Without a registry it would be one of Docker's, where anyone may publish another image under it.
const REPOSITORY: &str = "localhost/pmbpf";

/// Image for a processor: its manifest in the form of a reference, and the folder that has it.
pub(super) struct Image {
    manifest: Value,
    layout: PathBuf,
}

/// Writes the archive for a processor, which docker of any age loads as well.
pub(super) fn write(release: &Release, binary: &Path, architecture: &str) -> anyhow::Result<Image> {
    let layout = release.folder.join(format!("image-{architecture}"));
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
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor(&config, "application/vnd.oci.image.config.v1+json"),
        "layers": [descriptor(&layer, "application/vnd.oci.image.layer.v1.tar+gzip")],
    });
    let manifest = blob(&layout, manifest.to_string().as_bytes())?;
    let mut manifest = descriptor(&manifest, "application/vnd.oci.image.manifest.v1+json");
    manifest["platform"] = json!({"architecture": architecture, "os": "linux"});
    // Docker before 25 reads this file alone.
    let of_docker = json!([{
        "Config": place(&config), "Layers": [place(&layer)],
        "RepoTags": [format!("{REPOSITORY}:{}", release.version)],
    }]);
    fs::write(layout.join("manifest.json"), of_docker.to_string())?;
    archive(
        release,
        &layout,
        manifest.clone(),
        &format!("pmbpf-{}-{architecture}.oci.tar", release.version),
    )?;
    fs::remove_file(layout.join("manifest.json"))?;
    Ok(Image { manifest, layout })
}

/// Writes one archive of the images for all processors, of which every node takes its own.
pub(super) fn write_all(release: &Release, images: &[Image]) -> anyhow::Result<()> {
    let [first, others @ ..] = images else { return Ok(()) };
    for image in others {
        for blob in fs::read_dir(image.layout.join("blobs/sha256"))?.flatten() {
            fs::copy(blob.path(), first.layout.join("blobs/sha256").join(blob.file_name()))?;
        }
    }
    let manifests: Vec<&Value> = images.iter().map(|image| &image.manifest).collect();
    let kind = "application/vnd.oci.image.index.v1+json";
    let index = json!({"schemaVersion": 2, "mediaType": kind, "manifests": manifests});
    let index = blob(&first.layout, index.to_string().as_bytes())?;
    let name = format!("pmbpf-{}.oci.tar", release.version);
    archive(release, &first.layout, descriptor(&index, kind), &name)?;
    images.iter().try_for_each(|image| fs::remove_dir_all(&image.layout))?;
    Ok(())
}

/// Writes an archive of a layout with this image or index as its entry.
fn archive(release: &Release, layout: &Path, mut entry: Value, name: &str) -> anyhow::Result<()> {
    let image = format!("{REPOSITORY}:{}", release.version);
    entry["annotations"] =
        json!({"org.opencontainers.image.ref.name": image, "io.containerd.image.name": image});
    let index = json!({"schemaVersion": 2, "manifests": [entry]});
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
    release.tar(&release.folder.join(name), layout, ".")
}

fn descriptor(blob: &Blob, kind: &str) -> Value {
    json!({"mediaType": kind, "digest": blob.digest, "size": blob.size})
}

/// Returns the path of a file in the layout.
fn place(blob: &Blob) -> String {
    format!("blobs/{}", blob.digest.replace(':', "/"))
}

/// Returns the only layer, and the hash of its uncompressed contents.
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
