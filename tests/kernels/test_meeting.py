"""Threads that meet: who waits for long sleeps, is woken, and takes no CPU time from the one that is waited for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heed.kernels.prebuilt import FLAGS, SOURCES

MEETING = r"""
#include "team.h"
#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>
#include <vector>
OpenMp heed_openmp{nullptr, nullptr, nullptr};

double computed() {  // seconds of CPU time that this thread took
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

int main() {
  const int size = 3, rounds = 2000;
  Meeting meeting(size);
  std::atomic<int> wrong{0};
  double waited[size] = {0, 0, 0};  // CPU time of each in the rounds in which it waits for long
  int at[size] = {0, 0, 0};
  std::vector<std::thread> threads;
  for (int me = 0; me < size; ++me)
    threads.emplace_back([&, me] {
      for (int round = 0; round < rounds; ++round) {
        const bool late = round % 500 == 0;
        if (me == 0 && late) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        at[me] = round + 1;
        const double begun = late ? computed() : 0;
        meeting.wait();
        if (late) waited[me] += computed() - begun;
        for (int who = 0; who < size; ++who) wrong += at[who] != round + 1;  // nobody is behind, nobody is ahead
        meeting.wait();
      }
    });
  for (auto& thread : threads) thread.join();
  std::printf("%d %f\n", wrong.load(), waited[1] + waited[2]);
}
"""


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("g++") is None, reason="needs g++ on Linux")
def test_threads_meet_and_sleep_meanwhile(tmp_path: Path) -> None:
    source, program = tmp_path / "meeting.cpp", tmp_path / "meeting"
    source.write_text(MEETING, encoding="utf-8")
    flags = [flag for flag in FLAGS if flag not in {"-shared", "-fPIC"}]
    subprocess.run(["g++", *flags, f"-I{SOURCES}", str(source), "-o", str(program), "-pthread"], check=True)
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True, timeout=60)
    wrong, seconds = done.stdout.split()
    assert wrong == "0"
    assert float(seconds) < 0.1, "two threads that waited for 0.4 s and never slept would take 0.4 to 0.8"
