"""The playground: its config, its picture and its sliders, also in a browser."""

import io
import shutil
import socket
import subprocess
import sys
import time

import nbformat
import numpy as np
import pytest
from matplotlib import image

from laggard import ConfigError, explore
from laggard.experiments.config.config import parse
from laggard.experiments.config.document import find_config, parse_yaml, read
from laggard.experiments.playground import Knobs, facts_of, picture_of, simulate_clock
from laggard.simulator.algorithms import ALGORITHMS
from tests.experiments.killing import wait_for

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


def pixels(picture):
    return image.imread(io.BytesIO(picture), format="png")


def test_text_is_the_config_that_was_simulated():
    knobs = Knobs("sync_ps", workers=4, cv=0.0)
    document = parse_yaml(knobs.text(), "the text")
    assert parse(document).algorithm.name == "sync_ps"
    assert simulate_clock(knobs).config == parse(document)


def test_facts_show_the_run_beside_theory():
    """Constant times on a fast network: asynchronous workers are P - 1 updates late."""
    knobs = Knobs("async_ps", workers=4, slow_factor=1.0, cv=0.0, latency=0.0, bandwidth=1e12)
    (_, rate, _), (_, staleness, theory), (_, waiting, _) = facts_of(simulate_clock(knobs))
    assert float(rate) == pytest.approx(400, rel=0.05)
    assert theory == "3.00"
    assert float(staleness) == pytest.approx(3, abs=0.1)
    assert waiting == "0 %"


def workers_of_toy(method):
    try:
        toy = read(find_config(f"example:methods/{method}"))
    except ConfigError:  # its toy configs are named by their collectives
        return Knobs().workers
    return toy["cluster"].get("workers", Knobs().workers)


@pytest.mark.slow
@pytest.mark.parametrize("method", ALGORITHMS)
def test_every_method_is_drawn_with_its_toy_workers(method):
    result = simulate_clock(Knobs(method, workers=workers_of_toy(method)))
    assert pixels(picture_of(result)).std() > 0.05
    assert facts_of(result)


def test_refusal_keeps_the_last_picture_of_sliders():
    playground = explore("sync_ps", workers=4)
    first = playground.picture.value
    playground.controls["slow_factor"].value = 9
    slower = playground.picture.value
    assert not np.array_equal(pixels(first), pixels(slower))
    assert playground.result.config.cluster.slowdowns[0].factor == 9
    assert "factor: 9" in playground.config.value
    playground.controls["method"].value = "fedavg"  # of ten clients
    assert "algorithm.clients" in playground.problem.value
    assert playground.picture.value == slower
    playground.controls["method"].value = "async_ps"
    assert not playground.problem.value
    playground.controls["bandwidth"].value = 10
    assert playground.result.config.cluster.network.bandwidth == 1e7


def test_button_shows_and_hides_the_config():
    playground = explore("sync_ps", workers=2)
    assert playground.config.layout.display == "none"
    playground.button.value = True
    assert playground.config.layout.display != "none"
    playground.button.value = False
    assert playground.config.layout.display == "none"


def test_script_prints_the_numbers():
    shown = repr(explore("sync_ps", workers=4)).splitlines()
    assert shown[0].startswith("sync_ps, 4 workers")
    assert shown[2] == "  mean staleness (updates): 0.00 (theory: 0.00)"


def test_unknown_method_is_refused():
    with pytest.raises(ConfigError, match="did you mean"):
        explore("asynch_ps")


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@pytest.mark.slow
@pytest.mark.skipif(not (BROWSER and DRIVER), reason="no chromium with its driver here")
def test_slider_in_a_browser_redraws(tmp_path):
    """JupyterLab opens a notebook and runs its cell; a key on the slider of workers redraws it."""
    from selenium import webdriver
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    cell = nbformat.v4.new_code_cell("from laggard import explore\n\nexplore()")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=kernel), tmp_path / "play.ipynb")
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser", "--ip=127.0.0.1"]
    command += [f"--port={port}", "--IdentityProvider.token=", f"--ServerApp.root_dir={tmp_path}"]
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for option in ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
                   "disable-background-networking", "disable-component-update", "disable-sync",
                   f"user-data-dir={tmp_path / 'profile'}", "window-size=1300,1000"):  # fmt: skip
        options.add_argument(f"--{option}")
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    driver = None
    try:
        wait_for(lambda: is_open(port))
        driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
        driver.get(f"http://127.0.0.1:{port}/doc/tree/play.ipynb")
        code = "css selector", ".jp-Cell .cm-content"
        wait_for(lambda: driver.find_elements(*code))
        time.sleep(5)  # the start of the kernel draws the cell anew
        driver.find_element(*code).click()
        ActionChains(driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()
        handles = wait_for(lambda: driver.find_elements("css selector", ".noUi-handle"))
        (picture,) = driver.find_elements("css selector", "img.widget-image")
        before = picture.get_attribute("src")
        driver.save_screenshot(str(tmp_path / "before.png"))
        handles[0].send_keys(Keys.ARROW_RIGHT)
        wait_for(lambda: picture.get_attribute("src") != before)
        readout = driver.find_elements("css selector", ".widget-readout")[0]
        assert readout.text == "9"
        driver.save_screenshot(str(tmp_path / "after.png"))
    finally:
        if driver is not None:
            driver.quit()
        server.terminate()
        server.wait(20)


def is_open(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
