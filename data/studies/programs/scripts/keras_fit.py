"""Classifier in the layout of keras' examples: model.compile and model.fit."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from keras import layers

model = keras.Sequential([keras.Input((32, 32, 3))])
for filters in (16, 32):
    model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
    model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
    model.add(layers.MaxPooling2D())
model.add(layers.Flatten())
model.add(layers.Dense(10, activation="softmax"))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

rng = np.random.default_rng(0)
x, y = rng.random((128, 32, 32, 3), np.float32), rng.integers(0, 10, (128,))
model.fit(x, y, batch_size=64, epochs=1, verbose=0)
