//! How many threads can run at once here: cores of the process's affinity, and of them what the
//! quotas of its control groups pay for.
//!
//! In: `/proc/self/cgroup`, which names the groups, `/proc/self/mountinfo`, which says where they
//! are mounted, and the quotas there: `cpu.max` in version 2, `cpu.cfs_quota_us` and
//! `cpu.cfs_period_us` in version 1. A quota of a group holds for all groups below it, so the
//! smallest up to the mount counts. The standard library rounds quotas down; this rounds up, so
//! that a quota of 1.5 cores is used to the full.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::thread;

/// Threads that can run at once, at least 1: what `0` stands for wherever a number of threads is
/// asked for.
pub fn cores() -> usize {
    let quota = quota(Path::new("/")).unwrap_or(usize::MAX);
    affinity().min(quota).max(1)
}

/// Cores that the process may run on.
#[cfg(target_os = "linux")]
fn affinity() -> usize {
    // SAFETY: a set of cores is plain bits, of which none may be set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is as large as is said, and writable.
    let status = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    // The call fails where the machine has more cores than the set has bits.
    if status != 0 {
        return thread::available_parallelism().map_or(1, usize::from);
    }
    // SAFETY: the set was just filled.
    usize::try_from(unsafe { libc::CPU_COUNT(&set) }).unwrap_or(1)
}

/// Cores that the process may run on.
#[cfg(not(target_os = "linux"))]
fn affinity() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The smallest quota in cores, rounded up, of a system whose files are below `root`; `None` if
/// there is none.
fn quota(root: &Path) -> Option<usize> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    let of_line = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let version = match controllers {
            "" => Version::Two,
            _ if controllers.split(',').any(|c| c == "cpu") => Version::One,
            _ => return None,
        };
        let mount = mounts.iter().find(|mount| mount.version == version)?;
        mount.folders(root, path).iter().filter_map(|folder| version.quota(folder)).min()
    };
    groups.lines().filter_map(of_line).min()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The quota of one group.
    fn quota(self, folder: &Path) -> Option<usize> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let (quota, period) = match self {
            Version::One => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
            Version::Two => {
                let text = read("cpu.max")?;
                let (quota, period) = text.trim().split_once(' ')?;
                (quota.to_owned(), period.to_owned())
            }
        };
        // `max` and -1 stand for no quota, and are no numbers of this type.
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let (quota, period) = (number(&quota)?, number(&period)?);
        (period > 0).then(|| quota.div_ceil(period).max(1))
    }
}

/// Where a hierarchy of groups is mounted.
struct Mount {
    version: Version,
    /// The group that the mounted folder shows: not the topmost one in a container.
    root: PathBuf,
    folder: PathBuf,
}

impl Mount {
    /// A line as `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
    fn parse(line: &str) -> Option<Mount> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, folder) = (mount.next()?.into(), mount.next()?.into());
        let mut system = system.split(' ');
        let version = match system.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if system.next_back()?.split(',').any(|option| option == "cpu") => {
                Version::One
            }
            _ => return None,
        };
        Some(Mount { version, root, folder })
    }

    /// The folders of a group and of those above it.
    fn folders(&self, root: &Path, group: &str) -> Vec<PathBuf> {
        let within = Path::new(group).strip_prefix(&self.root).unwrap_or(Path::new(""));
        // A group outside of what is mounted is written with `..`.
        let is_plain = within.components().all(|part| matches!(part, Component::Normal(_)));
        let within = if is_plain { within } else { Path::new("") };
        let mounted = root.join(self.folder.strip_prefix("/").unwrap_or(&self.folder));
        within.ancestors().map(|part| mounted.join(part)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
    const ONE: &str = "31 24 0:27 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                       32 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    /// The quota of a system with these files.
    fn quota_of(files: &[(&str, &str)]) -> Option<usize> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        quota(root.path())
    }

    fn version_2(group: &str, files: &[(&str, &str)]) -> Option<usize> {
        let group = format!("0::{group}\n");
        let own = [("proc/self/cgroup", group.as_str()), ("proc/self/mountinfo", TWO)];
        quota_of(&[&own, files].concat())
    }

    #[test]
    fn quotas_of_version_2_are_rounded_up() {
        let with = |text| version_2("/a/b", &[("sys/fs/cgroup/a/b/cpu.max", text)]);
        assert_eq!(with("200000 100000\n"), Some(2));
        assert_eq!(with("150000 100000\n"), Some(2));
        assert_eq!(with("1000 100000\n"), Some(1));
        for none in ["max 100000\n", "", "7\n", "1 0\n", "-1 100000\n"] {
            assert_eq!(with(none), None, "{none}");
        }
    }

    #[test]
    fn the_smallest_quota_up_the_hierarchy_counts() {
        let files = [
            ("sys/fs/cgroup/a/b/cpu.max", "800000 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "300000 100000\n"),
            ("sys/fs/cgroup/other/cpu.max", "100000 100000\n"),
        ];
        assert_eq!(version_2("/a/b", &files), Some(3));
        assert_eq!(version_2("/a/b/unreadable", &files), Some(3));
        assert_eq!(version_2("/", &files), None);
    }

    #[test]
    fn a_group_outside_of_the_mount_is_the_mount() {
        let files = [("sys/fs/cgroup/cpu.max", "400000 100000\n")];
        assert_eq!(version_2("/../up", &files), Some(4));
    }

    #[test]
    fn quotas_of_version_1() {
        let group = "3:memory:/docker/x\n4:cpu,cpuacct:/docker/x/inner\n";
        let folder = |name| format!("sys/fs/cgroup/cpu,cpuacct/inner/{name}");
        let (quota, period) = (folder("cpu.cfs_quota_us"), folder("cpu.cfs_period_us"));
        let with = |microseconds| {
            quota_of(&[
                ("proc/self/cgroup", group),
                ("proc/self/mountinfo", ONE),
                (quota.as_str(), microseconds),
                (period.as_str(), "50000\n"),
            ])
        };
        assert_eq!(with("120000\n"), Some(3));
        assert_eq!(with("-1\n"), None);
    }

    #[test]
    fn systems_without_groups_have_no_quota() {
        assert_eq!(quota_of(&[]), None);
        assert_eq!(quota_of(&[("proc/self/cgroup", "0::/\n")]), None);
    }

    #[test]
    fn this_machine_has_cores() {
        let most = thread::available_parallelism().unwrap().get();
        // The standard library rounds quotas down.
        assert!((1..=most + 1).contains(&cores()), "{} {most}", cores());
    }
}
