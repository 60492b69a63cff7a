# SPDX-License-Identifier: BSD-3-Clause
"""The weights of a model, as they are trained, to a process that uses them."""

import multiprocessing

import torch
from torch import nn

import tensormsg

STEPS = 3


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


class ResNet(nn.Module):
    def __init__(self, width: int = 16, blocks: int = 3,
                 classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.blocks(self.stem(x))
        scores: torch.Tensor = self.head(features.mean(dim=(2, 3)))
        return scores


def train(url: str) -> None:
    """Sends the state_dict after each step, then an input and its output."""
    torch.manual_seed(7)
    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 3, 8, 8)
    with tensormsg.connect(url) as ep:
        for step in range(STEPS):
            loss = nn.functional.cross_entropy(model(x), torch.arange(4))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ep.send(model.state_dict(), step=step, loss=loss.item())
        with torch.no_grad():
            ep.send({"x": x, "y": model.eval()(x)})


def main() -> None:
    torch.manual_seed(8)  # other weights than there
    model = ResNet().eval()
    with tensormsg.listen(":0", like="torch") as listener:
        trainer = multiprocessing.get_context("spawn").Process(
            target=train, args=(listener.url,))
        trainer.start()

        # One way: a message is a mapping of names to tensors.
        msg = listener.recv(timeout=300)
        model.load_state_dict(dict(msg))
        print("step", msg.meta["step"], "loss", round(msg.meta["loss"], 3))

        # The other: straight into the model's own memory.
        for _ in range(STEPS - 1):
            msg = msg.peer.recv_into(model.state_dict(), timeout=300)
            print("step", msg.meta["step"], "loss", round(msg.meta["loss"], 3))

        check = msg.peer.recv(timeout=300)
        with torch.no_grad():
            same = torch.allclose(model(check["x"]), check["y"], atol=1e-5)
        print("the same outputs:", same)
        assert list(msg.peer) == []  # until the trainer has closed
        trainer.join()
        assert same and trainer.exitcode == 0


if __name__ == "__main__":
    main()
