//! The mounts do what crash tests rely on: a full disk says so, and a cut keeps what was synced and
//! no more.

use std::fs::{self, File};
use std::io::{self, Write};

use kukuri_testkit::mount::{PowerCut, Tmpfs};
use kukuri_testkit::postgres::{Cluster, Durability, Settings};

const MIB: u64 = 1 << 20;

#[test]
fn tmpfs_is_full_at_its_size_and_gone_when_dropped() {
    let tmpfs = match Tmpfs::mount(MIB) {
        Ok(tmpfs) => tmpfs,
        Err(error) => return error.skip("tmpfs_is_full_at_its_size_and_gone_when_dropped"),
    };
    let path = tmpfs.path().to_owned();
    fs::write(path.join("fits"), vec![1; 512 << 10]).unwrap();
    let error = fs::write(path.join("does-not"), vec![1; 1 << 20]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    fs::remove_file(path.join("does-not")).unwrap();
    fs::write(path.join("fits-again"), vec![1; 256 << 10]).unwrap();
    drop(tmpfs);
    assert!(!path.exists());
}

#[test]
fn power_cut_keeps_what_was_synced_and_loses_what_was_not() {
    let rig = match PowerCut::mount(32 * MIB) {
        Ok(rig) => rig,
        Err(error) => {
            return error.skip("power_cut_keeps_what_was_synced_and_loses_what_was_not");
        }
    };
    let name = "record";
    let mut file = File::create(rig.path().join(name)).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    File::open(rig.path()).unwrap().sync_all().unwrap();
    file.write_all(b" forgotten").unwrap();
    let image = rig.cut().unwrap();
    file.sync_all().unwrap();
    let later = rig.cut().unwrap();

    // The rig would prove nothing if the live file did not hold more than the image.
    assert_eq!(fs::read(rig.path().join(name)).unwrap(), b"synced forgotten");
    let restored = image.mount().unwrap();
    assert_eq!(fs::read(restored.path().join(name)).unwrap(), b"synced");
    let restored_later = later.mount().unwrap();
    assert_eq!(fs::read(restored_later.path().join(name)).unwrap(), b"synced forgotten");
}

#[test]
fn images_outlive_their_power_cut_and_free_their_memory() {
    let rig = match PowerCut::mount(16 * MIB) {
        Ok(rig) => rig,
        Err(error) => return error.skip("images_outlive_their_power_cut_and_free_their_memory"),
    };
    for _ in 0..20 {
        let restored = rig.cut().unwrap().mount().unwrap();
        assert!(restored.path().join("lost+found").is_dir());
    }
    let last = rig.cut().unwrap();
    drop(rig);
    let restored = last.mount().unwrap();
    assert!(restored.path().join("lost+found").is_dir());
}

#[test]
fn a_cluster_lives_where_it_is_told_to_and_is_found_there_again() {
    let tmpfs = match Tmpfs::mount(256 * MIB) {
        Ok(tmpfs) => tmpfs,
        Err(error) => {
            return error.skip("a_cluster_lives_where_it_is_told_to_and_is_found_there_again");
        }
    };
    let settings = Settings {
        home: Some(tmpfs.path().to_owned()),
        options: vec![("max_connections".to_owned(), "7".to_owned())],
        ..Settings::new(Durability::Fast)
    };
    let mut cluster = Cluster::start_with(&settings).unwrap();
    assert!(cluster.data_dir().starts_with(tmpfs.path()));
    assert_eq!(cluster.sql("postgres", "SHOW max_connections").unwrap(), "7");
    cluster.sql("postgres", "CREATE TABLE kept (value TEXT)").unwrap();
    cluster.stop_fast().unwrap();
    drop(cluster);
    let cluster = Cluster::start_with(&settings).unwrap();
    assert_eq!(cluster.sql("postgres", "SELECT count(*) FROM kept").unwrap(), "0");
}
