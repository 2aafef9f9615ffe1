# laggard and JupyterLab, on a CPU:
#   docker build --tag laggard .
#   docker run --rm --publish 8888:8888 --volume "$PWD:/work" laggard
# and a command: docker run --rm --volume "$PWD:/work" laggard laggard sweep example:quickstart
FROM python:3.11-slim

COPY . /opt/laggard
RUN cd /opt/laggard \
    && pip install --no-cache-dir --no-compile --index-url https://download.pytorch.org/whl/cpu \
        torch==2.13.0 torchvision==0.28.0 \
    && pip install --no-cache-dir --no-compile --constraint constraints.txt '.[notebook]' \
    && rm -rf /opt/laggard

WORKDIR /work
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "--allow-root"]
