# SPDX-License-Identifier: Apache-2.0
"""One measurement of a peer, as one JSON line: peers.py dali|torchvision|webdataset DIR DTYPE BATCH THREADS SECONDS

Each does what data_bench's pipeline does, by its fastest documented configuration for the CPU.
"""
import json, os, resource, sys, time


def cpu_seconds():
    """Of this process and its living children: what workers took to start, before the first call, does not count."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    for entry in os.listdir("/proc"):
        try:
            fields = open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split() if entry.isdigit() else []
        except OSError:
            continue
        if fields and int(fields[1]) == os.getpid():
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(batches, batch, seconds, close=lambda: None):
    for _ in range(3):
        next(batches)
    samples, cpu, start = 0, cpu_seconds(), time.perf_counter()
    while time.perf_counter() - start < seconds:
        next(batches)
        samples += batch
    wall, used = time.perf_counter() - start, cpu_seconds() - cpu
    close()
    result = {"samples": samples, "samples_per_s": round(samples / wall, 1), "cpu_ms_per_sample": round(1e3 * used / samples, 4)}
    print(json.dumps(result))


def dali(folder, dtype, batch, threads, seconds):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=batch, num_threads=threads, device_id=None, prefetch_queue_depth=3)
    def make():
        files = [os.path.join(folder, f) for f in sorted(os.listdir(folder))]
        encoded, _ = fn.readers.file(files=files, random_shuffle=True, pad_last_batch=True, initial_fill=len(files))
        images = fn.decoders.image_random_crop(encoded, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0],
                                               random_aspect_ratio=[3 / 4, 4 / 3])
        images = fn.resize(images, size=[224, 224], interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), dtype=types.FLOAT16 if dtype == "f16" else types.FLOAT,
                                        output_layout="CHW", mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])

    pipe = make()
    pipe.build()

    def batches():
        while True:
            pipe.run()
            yield None

    measure(batches(), batch, seconds)


def transforms(dtype):
    import torch
    from torchvision.transforms import v2
    return v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(),
                       v2.ToDtype(torch.float16 if dtype == "f16" else torch.float32, scale=True),
                       v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])


class Files:
    """Module level, so that worker processes can import it."""

    def __init__(self, folder, dtype):
        self.paths = [os.path.join(folder, f) for f in sorted(os.listdir(folder))]
        self.transform = transforms(dtype)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        from torchvision.io import ImageReadMode, decode_image
        return self.transform(decode_image(self.paths[i], mode=ImageReadMode.RGB))


def torchvision(folder, dtype, batch, threads, seconds):
    import torch
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Files(folder, dtype), batch_size=batch, shuffle=True, num_workers=threads, drop_last=True,
                                         persistent_workers=True, prefetch_factor=3)

    def batches():
        while True:
            yield from loader

    def close():
        loader._iterator._shutdown_workers()

    measure(batches(), batch, seconds, close)


class Decoder:
    def __init__(self, dtype):
        self.transform = transforms(dtype)

    def __call__(self, sample):
        import torch
        from torchvision.io import ImageReadMode, decode_image
        return self.transform(decode_image(torch.frombuffer(bytearray(sample["jpg"]), dtype=torch.uint8), mode=ImageReadMode.RGB)), int(sample["cls"])


def webdataset(folder, dtype, batch, threads, seconds):
    """Shards of a folder, split over the workers, shuffled in a buffer, batched in the workers."""
    import torch
    import webdataset as wds
    torch.set_num_threads(1)
    shards = [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith(".tar")]
    data = (wds.WebDataset(shards, shardshuffle=len(shards), workersplitter=wds.split_by_worker).shuffle(200).map(Decoder(dtype))
            .batched(batch, partial=False).repeat())
    loader = wds.WebLoader(data, batch_size=None, num_workers=threads, persistent_workers=True, prefetch_factor=3)
    iterator = iter(loader)
    measure(iterator, batch, seconds, lambda: loader.pipeline[0]._iterator._shutdown_workers() if loader.pipeline[0]._iterator is not None else None)


if __name__ == "__main__":
    which, folder, dtype, batch, threads, seconds = sys.argv[1:]
    {"dali": dali, "torchvision": torchvision, "webdataset": webdataset}[which](folder, dtype, int(batch), int(threads), float(seconds))
